"""Packed documents: positions restart, but attention crosses the document boundary.

Several short documents share a row. Resetting position ids at each boundary is mistaken for
isolation; without a block-diagonal mask the second document reads the first.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "packing-cross-contamination",
    "symptom": "Loss still goes down; changing document 1 changes the logits of document 2.",
    "source": [
        "https://github.com/huggingface/transformers/pull/46634",
        "https://github.com/huggingface/nanoVLM/pull/204",
        "https://github.com/DeepOpt-com/WrinkleFree-Monorepo/issues/53",
        "https://github.com/axolotl-ai-cloud/axolotl/pull/3796",
    ],
    "right": "allowed = causal AND same document.",
    "call": "y = m(x, doc) # x (B, T, 16), doc (B, T) long document number",
    "expected": "tokens of one document change when another document in the same row changes",
    "probe": "perturb document 0 and compare the outputs of document 1",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": True,
        "mask": "doc (B,T) long document ids",
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class PackedAttention(nn.Module):
    """forward(x, doc) -> y;
    doc (B, T) long gives the document of each token. Causal inside a document.
    """

    def __init__(self, d=16, h=2, n=32):
        super().__init__()
        self.h = h
        self.pos = nn.Embedding(n, d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def allowed(self, doc):
        t = doc.shape[1]
        return torch.ones(t, t, device=doc.device).tril().bool()

    def forward(self, x, doc):
        same = doc[:, :, None] == doc[:, None, :]
        pos = same.tril().sum(-1) - 1  # restarts at every document
        q, k, v = (heads(z, self.h) for z in self.qkv(x + self.pos(pos)).chunk(3, -1))
        return self.out(
            unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=self.allowed(doc)))
        )


class Fixed(PackedAttention):
    def allowed(self, doc):
        return (super().allowed(doc) & (doc[:, :, None] == doc[:, None, :]))[:, None]


def build():
    return seeded(PackedAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(1, 6, 16), torch.tensor([[0, 0, 0, 1, 1, 1]])), {}


def demo():
    (x, doc), _ = example_inputs()
    x2 = x.clone()
    x2[:, :3] = rand(1, 3, 16, seed=2)
    bad, good = build(), build_fixed()
    assert gap(bad(x2, doc)[:, 3:], bad(x, doc)[:, 3:]) > 1e-2
    assert gap(good(x2, doc)[:, 3:], good(x, doc)[:, 3:]) == 0.0
    assert gap(good(x, doc)[:, 3:], good(x[:, 3:], doc[:, 3:])) < 1e-6  # same as the document alone
