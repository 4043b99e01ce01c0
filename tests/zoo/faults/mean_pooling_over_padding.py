"""The attention respects the mask, but the mean pooling on top includes the padded positions.

Hidden states of padded positions are not zero. Averaging over the whole length makes a sentence
vector depend on the longest sentence of its batch.
"""

import torch
import torch.nn as nn

META = {
    "kind": "pooling-includes-padding",
    "symptom": "Sentence embeddings differ between batch size 1 and batch size 2.",
    "source": [
        "https://github.com/huggingface/transformers/issues/17463",
        "https://github.com/jsboige/CoursIA/issues/15045",
        "https://github.com/autoliuweijie/BERT-whitening-pytorch/issues/13",
    ],
    "right": "(h * mask).sum(1) / mask.sum(1).",
    "call": "vec = m(x, keep) # (B, 16); keep (B, T) bool, True = real token",
    "expected": (
        "pooled output changes with extra padding although the attention is masked: pooling "
        "includes padding"
    ),
    "probe": (
        "append extra padding columns and compare the pooled vector; leak at pooled level but not "
        "at token level"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": "(B,T) bool, True=keep",
        "output": "(B, d) pooled",
    },
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def gap(a, b):
    """Largest absolute difference of two tensors."""
    return (a - b).abs().max().item()


def rand(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class SentenceEncoder(nn.Module):
    """forward(x, keep) -> (B, d) sentence vector; keep (B, T) bool, True = real token."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(d, h, 32, dropout=0.0, batch_first=True)

    def pool(self, y, keep):
        return y.mean(1)

    def forward(self, x, keep):
        return self.pool(self.layer(x, src_key_padding_mask=~keep), keep)


class Fixed(SentenceEncoder):
    def pool(self, y, keep):
        w = keep[..., None].to(y.dtype)
        return (y * w).sum(1) / w.sum(1)


def build():
    return seeded(SentenceEncoder)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[:, 4:] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    bad, good = build(), build_fixed()
    (x, keep), _ = example_inputs()
    assert gap(bad(x, keep), bad(x[:, :4], keep[:, :4])) > 1e-2
    assert gap(good(x, keep), good(x[:, :4], keep[:, :4])) < 1e-5
