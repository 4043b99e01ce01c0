"""An encoder that should look both ways still has the causal mask of the sample code.

The language-model tutorial's square subsequent mask was copied into a sequence-to-sequence or
tagging encoder. Token t cannot see the right context.
"""

import torch
import torch.nn as nn

META = {
    "kind": "unwanted-causal",
    "symptom": (
        "Even an identity or denoising task is not learned well; the first positions are worst."
    ),
    "source": [
        "https://openillumi.com/en/en-pytorch-transformer-non-ar-seq2seq-mask-guide",
        "https://discuss.pytorch.org/t/how-to-make-sure-which-masking-arguments-i-need-to-provide-for-calling-torch-nn-transformer-model/179371",
    ],
    "right": "No causal mask in a bidirectional encoder.",
    "call": "y = m(x) # x (B, T, 16); intent: bidirectional",
    "expected": (
        "intended bidirectional, but outputs never depend on later tokens: causal mask present"
    ),
    "probe": (
        "future-influence test with the intent causal=False: no influence at all is the finding"
    ),
    "intent": {"input": "embed", "d_model": 16, "heads": 2, "causal": False, "mask": None},
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


class Encoder(nn.Module):
    """forward(x) -> y; meant to be bidirectional."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(d, h, 32, dropout=0.0, batch_first=True)

    def mask(self, t):
        return nn.Transformer.generate_square_subsequent_mask(t)

    def forward(self, x):
        return self.layer(x, src_mask=self.mask(x.shape[1]))


class Fixed(Encoder):
    def mask(self, t):
        return None


def build():
    return seeded(Encoder)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x, other = rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert future_leak(build().eval(), x, other, 2) < 1e-6
    assert future_leak(build_fixed().eval(), x, other, 2) > 1e-2
