"""Faults in Shaw's and Transformer-XL's positions, and in the memory of segments."""

from mutants import Mutant

MODULE = "attnlib.positions.relative"
TESTS = ["test_relative_positions.py"]
MUTANTS = [
    Mutant(
        "ShawRelative",
        "not scaled as the other scores are",
        "(query / math.sqrt(d_head)) @ self.vectors.T",
        "query @ self.vectors.T",
        "positions weigh more than in the paper",
    ),
    Mutant(
        "ShawRelative",
        "the rows start at distance 0",
        "position.clamp(-self.max_distance, self.max_distance) + self.max_distance",
        "position.abs().clamp(max=self.max_distance)",
        "before and after look alike",
    ),
    Mutant(
        "ShawRelative",
        "counted the other way round",
        "row = position.clamp(",
        "row = (-position).clamp(",
        "nothing shows while the vectors are random",
    ),
    Mutant(
        "TransformerXL",
        "the distance counts the other way round",
        "waves = _waves(-each, ",
        "waves = _waves(each, ",
        "R of j - i: half of the sines change their sign",
    ),
    Mutant(
        "TransformerXL",
        "v is left out",
        "((query + self.v[:, None]) * scale)",
        "(query * scale)",
        "the fourth term of the paper",
    ),
    Mutant(
        "TransformerXL",
        "u asks nobody",
        "return (relative + self._of_keys(key * scale)).to(query.dtype)",
        "return relative.to(query.dtype)",
        "the third term of the paper",
    ),
    Mutant(
        "TransformerXL",
        "the key's term is not scaled",
        "self._of_keys(key * scale)",
        "self._of_keys(key)",
        "one term of three",
    ),
    Mutant(
        "SegmentMemory",
        "the gradient flows into the past",
        "self.states = x.detach()[:, -self.memory_len :].clone()",
        "self.states = x[:, -self.memory_len :].clone()",
        "the graph grows from segment to segment",
    ),
    Mutant(
        "SegmentMemory",
        "the first states are kept",
        "x.detach()[:, -self.memory_len :].clone()",
        "x.detach()[:, : self.memory_len].clone()",
        "the far past in place of the near one",
    ),
    Mutant(
        "SegmentMemory",
        "remembered behind the new",
        "torch.cat([self.states, x], dim=1)",
        "torch.cat([x, self.states], dim=1)",
        "the last query no longer sits at the last key",
    ),
    Mutant(
        "SegmentMemory",
        "a view is kept",
        "x.detach()[:, -self.memory_len :].clone()",
        "x.detach()[:, -self.memory_len :]",
        "the whole segment stays alive, and changes with its owner",
    ),
]
