"""GPTs of other libraries, with the same sizes as ours; measured only if they are installed.

They are not among the requirements. One way: ``pip install --no-deps --target FOLDER`` of the
libraries and of what they import, and ``PYTHONPATH=FOLDER``. Neither builds GPT-2 itself:
x-transformers has no biases, and litgpt has rotary positions and no dropout. So the work is nearly
equal, but the outputs cannot be.
"""

import importlib.metadata

from torch import nn

from attnlib.models.gpt import GPTConfig


def peer_of(library: str, config: GPTConfig) -> nn.Module | None:
    """A GPT that turns ids into logits; None if the library is missing or has no dropout."""
    try:
        return MAKERS[library](config)
    except ModuleNotFoundError:
        return None


def version_of(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _x_transformers(config: GPTConfig) -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(
        num_tokens=config.vocab_size,
        max_seq_len=config.max_len,
        emb_dropout=config.dropout,
        tie_embedding=config.tied,
        attn_layers=Decoder(
            dim=config.d_model,
            depth=config.n_layers,
            heads=config.n_heads,
            attn_dim_head=config.d_model // config.n_heads,
            attn_flash=True,
            attn_dropout=config.dropout,
            ff_mult=config.d_ff / config.d_model,
            ff_dropout=config.dropout,
        ),
    )


def _litgpt(config: GPTConfig) -> nn.Module | None:
    from litgpt.model import GPT, Config

    if config.dropout:
        return None
    model = GPT(
        Config(
            block_size=config.max_len,
            vocab_size=config.vocab_size,
            padded_vocab_size=config.vocab_size,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            n_embd=config.d_model,
            intermediate_size=config.d_ff,
            parallel_residual=False,
        )
    )
    if config.tied:
        model.lm_head.weight = model.transformer.wte.weight
    return model


MAKERS = {"x-transformers": _x_transformers, "litgpt": _litgpt}
