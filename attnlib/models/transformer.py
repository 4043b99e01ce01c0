"""The original Transformer: an encoder that reads a sentence, a decoder that writes another."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlib.checks import check_sizes
from attnlib.layers import DecoderLayer, EncoderLayer, PostNorm, PreNorm
from attnlib.models.encoder_decoder import EncoderDecoder, TokenEmbedding
from attnlib.positions import SinusoidalEncoding


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a Transformer; the defaults are those of the paper's base model.

    The big one is ``TransformerConfig(d_model=1024, n_heads=16, d_ff=4096, dropout=0.3)``.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is too small, or it is tied, but the vocabularies differ.

    Example:
        >>> TransformerConfig(n_layers=2).d_model
        512

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, table 3.
    """

    source_vocab_size: int = 37000
    target_vocab_size: int = 37000
    d_model: int = 512
    n_heads: int = 8
    n_layers: int = 6  # in the encoder, and as many in the decoder
    d_ff: int = 2048
    max_len: int = 1024
    dropout: float = 0.1
    tied: bool = True  # one table for source, target and head
    final_norm: bool = False  # normalise after the last layer once more, as nn.Transformer does

    def __post_init__(self) -> None:
        check_sizes(source_vocab_size=self.source_vocab_size, d_model=self.d_model)
        check_sizes(target_vocab_size=self.target_vocab_size, n_heads=self.n_heads)
        check_sizes(d_ff=self.d_ff, max_len=self.max_len)
        check_sizes(at_least=0, n_layers=self.n_layers)
        if self.tied and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                "to be tied, source and target must share a vocabulary, but source_vocab_size="
                f"{self.source_vocab_size} and target_vocab_size={self.target_vocab_size}; give "
                "tied=False"
            )


class Transformer(EncoderDecoder):
    r"""Translate a sequence, with attention alone.

    .. math:: memory = \mathrm{encoder}(\sqrt{d_{model}}\, E_{source} + PE)
    .. math:: logits = W\, \mathrm{decoder}(\sqrt{d_{model}}\, E_{target} + PE,\; memory)

    Usually source, target and head share one table: :math:`E_{source} = E_{target} = W`.

    Args:
        config: The sizes.
        positions: Makes the module that adds positions to the embeddings, for each side one:
            :class:`~attnlib.positions.SinusoidalEncoding` as in the paper, or
            :class:`~attnlib.positions.LearnedEncoding`.
        residual: Where the normalisation goes: :class:`~attnlib.layers.PostNorm` as in the paper,
            or :class:`~attnlib.layers.PreNorm`, which needs a norm after the last layer and always
            gets it.

    Example:
        >>> config = TransformerConfig(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=16)
        >>> model = Transformer(config)
        >>> model(torch.tensor([[3, 4, 5]]), torch.tensor([[1, 6]])).shape
        torch.Size([1, 2, 11])

        To translate, read the source once, then write token by token:

        >>> from attnlib.generate import greedy
        >>> cache = model.eval().start(torch.tensor([[3, 4, 5]]), max_len=4)
        >>> greedy(model.decode, torch.tensor([[1]]), max_new_tokens=4, cache=cache).shape
        torch.Size([1, 4])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762. Checked against ``torch.nn.Transformer``, forward and
        gradient of every parameter.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        positions: Callable[[int, int], nn.Module] = SinusoidalEncoding,
        residual: type[PostNorm] | type[PreNorm] = PostNorm,
    ) -> None:
        d_model, n_layers = config.d_model, config.n_layers
        sizes = (d_model, config.n_heads, config.d_ff)
        options = {"residual": residual, "dropout": config.dropout}
        has_final_norm = config.final_norm or residual is PreNorm
        source = nn.Embedding(config.source_vocab_size, d_model)
        target = source if config.tied else nn.Embedding(config.target_vocab_size, d_model)
        super().__init__(
            config.n_heads,
            *(
                TokenEmbedding(
                    tokens,
                    positions(d_model, config.max_len),
                    scale=d_model**0.5,
                    dropout=config.dropout,
                )
                for tokens in (source, target)
            ),
            encoder=(EncoderLayer(*sizes, **options) for _ in range(n_layers)),
            decoder=(DecoderLayer(*sizes, **options) for _ in range(n_layers)),
            to_logits=nn.Linear(d_model, config.target_vocab_size, bias=False),
            encoder_norm=nn.LayerNorm(d_model) if has_final_norm else None,
            decoder_norm=nn.LayerNorm(d_model) if has_final_norm else None,
        )
        self.config = config
        self._initialise()
        if config.tied:
            self.to_logits.weight = source.weight

    @torch.no_grad()
    def _initialise(self) -> None:
        """Start like the authors' code: what comes out of a linear map is as large as what went in.

        The tables start small, as they are multiplied by the root of d_model.
        """
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.to_logits.weight, std=self.config.d_model**-0.5)


def transformer_state_from_torch(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename and cut the parameters of ``torch.nn.Transformer`` to those of :class:`Transformer`.

    It has neither embeddings nor a head: add those, or load the state with ``strict=False``. The
    norms after the last layers go to a model with ``final_norm=True``. A model of its parts,
    ``nn.TransformerEncoder`` or ``nn.TransformerDecoder``, has this state if its names are given
    the prefix ``encoder.`` or ``decoder.``.

    Args:
        state: The ``state_dict()`` of an ``nn.Transformer``.

    Returns:
        A state for ``Transformer.load_state_dict``; the tensors are views, not copies.

    Raises:
        ValueError: If a name is not one of ``nn.Transformer``'s.

    Example:
        >>> fused = {"decoder.layers.0.multihead_attn.in_proj_bias": torch.arange(6.0)}
        >>> ours = transformer_state_from_torch(fused)
        >>> ours["decoder.0.cross_attention.to_key.bias"]
        tensor([2., 3.])
    """
    ours = {}
    for name, tensor in state.items():
        ours |= _renamed(name, tensor)
    return ours


def _renamed(name: str, tensor: Tensor) -> dict[str, Tensor]:
    match name.split(".", 3):  # decoder.layers.3.multihead_attn.out_proj.weight
        case ["encoder" | "decoder" as half, "norm", kind]:
            return {f"{half}_norm.{kind}": tensor}
        case ["encoder" | "decoder" as half, "layers", number, rest]:
            for theirs, ours in _PARTS[half].items():
                if rest.startswith(f"{theirs}."):
                    place, kind = f"{half}.{number}.{ours}", rest.removeprefix(f"{theirs}.")
                    return _of_part(place, kind, tensor)
    raise ValueError(
        f"{name} is no parameter of an nn.Transformer; take the state of the whole module, or put "
        "encoder. or decoder. in front of the names of its parts"
    )


def _of_part(place: str, kind: str, tensor: Tensor) -> dict[str, Tensor]:
    """A norm or a linear map as it is; of attention, the three fused projections apart."""
    if kind.startswith("in_proj_"):
        kind = kind.removeprefix("in_proj_")
        names = [f"{place}.to_{part}.{kind}" for part in ("query", "key", "value")]
        return dict(zip(names, tensor.chunk(3), strict=True))
    return {f"{place}.{kind.replace('out_proj', 'to_output')}": tensor}


_FEED_FORWARD = {"linear1": "feed_forward.widen", "linear2": "feed_forward.narrow"}
_PARTS = {
    "encoder": {
        "self_attn": "attention",
        "norm1": "around_attention.norm",
        "norm2": "around_feed_forward.norm",
        **_FEED_FORWARD,
    },
    "decoder": {
        "self_attn": "self_attention",
        "norm1": "around_self_attention.norm",
        "multihead_attn": "cross_attention",
        "norm2": "around_cross_attention.norm",
        "norm3": "around_feed_forward.norm",
        **_FEED_FORWARD,
    },
}
