"""Cross attention hides memory keys with the target's padding mask.

The decoder passes its own padding mask to the cross attention. When source and target have the
same length nothing crashes: real source tokens are hidden and source padding is read.
"""

import torch
import torch.nn as nn

META = {
    "kind": "cross-attention-wrong-mask",
    "symptom": (
        "Translations ignore the end of long sources; shape errors appear only when the lengths "
        "differ."
    ),
    "source": [
        "https://github.com/keras-team/keras-io/pull/1046",
        "https://github.com/fchollet/deep-learning-with-python-notebooks/issues/209",
        "https://github.com/lucidrains/x-transformers/issues/174",
        "https://github.com/Kamichanw/SeekDeeper/issues/3",
    ],
    "right": "memory_key_padding_mask comes from the source.",
    "call": "y = m(src, tgt, src_keep, tgt_keep) # all (B, T, 16) / (B, T) bool, True = real token",
    "expected": (
        "cross attention uses the target padding mask: source padding leaks, real source tokens "
        "are ignored"
    ),
    "probe": (
        "perturb source padding; perturb a real source token whose index is padding in the target"
    ),
    "intent": {
        "input": "src_tgt_embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": "src_keep, tgt_keep (B,T) bool, True=keep",
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


class CrossBlock(nn.Module):
    """forward(src, tgt, src_keep, tgt_keep) -> y; True = real token."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.cross = nn.MultiheadAttention(d, h, batch_first=True)

    def memory_hidden(self, src_keep, tgt_keep):
        return ~tgt_keep

    def forward(self, src, tgt, src_keep, tgt_keep):
        hide = self.memory_hidden(src_keep, tgt_keep)
        return tgt + self.cross(tgt, src, src, key_padding_mask=hide, need_weights=False)[0]


class Fixed(CrossBlock):
    def memory_hidden(self, src_keep, tgt_keep):
        return ~src_keep


def build():
    return seeded(CrossBlock)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    src_keep, tgt_keep = torch.ones(1, 6, dtype=torch.bool), torch.ones(1, 6, dtype=torch.bool)
    src_keep[:, 5:] = False
    tgt_keep[:, 3:] = False
    return (rand(1, 6, 16), rand(1, 6, 16, seed=2), src_keep, tgt_keep), {}


def demo():
    (src, tgt, sk, tk), _ = example_inputs()
    real, pad = src.clone(), src.clone()
    real[:, 4] += 3.0  # a real source token
    pad[:, 5] += 3.0  # source padding
    full = torch.ones_like(tk)
    for make, healthy in [(build, False), (build_fixed, True)]:
        m = make().eval()
        assert (gap(m(real, tgt, sk, tk), m(src, tgt, sk, tk)) > 1e-3) == healthy
        assert (gap(m(pad, tgt, sk, full), m(src, tgt, sk, full)) < 1e-6) == healthy
