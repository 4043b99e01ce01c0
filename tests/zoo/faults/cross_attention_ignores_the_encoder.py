"""Cross attention takes keys and values from the decoder.

The second attention of the decoder is called with the decoder's own states as keys and values (a
copy of the self-attention line). The encoder output is computed and never read; without its
causal mask the 'cross' attention also sees the future.
"""

import torch
import torch.nn as nn

META = {
    "kind": "cross-attention-wrong-kv",
    "symptom": (
        "The model is a language model that ignores the source; the encoder gets no gradient."
    ),
    "source": [
        "https://github.com/keitakurita/Practical_NLP_in_PyTorch/issues/1",
        "https://github.com/huggingface/transformers/pull/4680",
        "https://github.com/lucidrains/feedback-transformer-pytorch/issues/2",
    ],
    "right": "Queries from the decoder, keys and values from the encoder.",
    "call": "y = m(memory, tgt) # both (B, T, 16)",
    "expected": "output does not depend on the memory: cross attention uses the wrong keys/values",
    "probe": "perturb the memory: no change; gradient with respect to the memory is zero",
    "intent": {"input": "src_tgt_embed", "d_model": 16, "heads": 2, "causal": "tgt", "mask": None},
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


def future_leak(f, x, other, t):
    """How much outputs 0..t move when only inputs after t are replaced."""
    x2 = torch.cat([x[:, : t + 1], other[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, : t + 1], f(x)[:, : t + 1])


class Decoder(nn.Module):
    """forward(memory, tgt) -> y;
    causal self attention, then cross attention on the encoder memory.
    """

    def __init__(self, d=16, h=2):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d, h, batch_first=True)

    def cross(self, x, memory):
        return self.cross_attn(x, x, x, need_weights=False)[0]

    def forward(self, memory, tgt):
        t = tgt.shape[1]
        hide = torch.ones(t, t, dtype=torch.bool).triu(1)
        x = tgt + self.self_attn(tgt, tgt, tgt, attn_mask=hide, need_weights=False)[0]
        return x + self.cross(x, memory)


class Fixed(Decoder):
    def cross(self, x, memory):
        return self.cross_attn(x, memory, memory, need_weights=False)[0]


def build():
    return seeded(Decoder)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16), rand(2, 6, 16, seed=2)), {}


def demo():
    (mem, tgt), _ = example_inputs()
    other = rand(2, 6, 16, seed=3)
    bad, good = build(), build_fixed()
    assert torch.equal(bad(other, tgt), bad(mem, tgt))
    assert future_leak(lambda z: bad(mem, z), tgt, other, 2) > 1e-3
    assert gap(good(other, tgt), good(mem, tgt)) > 1e-3
    assert future_leak(lambda z: good(mem, z), tgt, other, 2) == 0.0
