"""T5: an encoder and a decoder that know positions only as a learned bias on the scores."""

from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlib.cache import KeysAndValues, LayerCache
from attnlib.checks import check_sizes
from attnlib.dropout import Dropout
from attnlib.layers import FeedForward, GatedFeedForward, MultiHeadAttention, PreNorm
from attnlib.models.encoder_decoder import EncoderDecoder, TokenEmbedding, shift_right
from attnlib.models.inputs import check_ids
from attnlib.positions import T5Bias

_EPS = 1e-6  # added to the mean of squares in the normalisations, in every published T5


@dataclass(frozen=True)
class T5Config:
    """The sizes of a T5; the defaults are those of T5-small. :data:`T5_CONFIGS` has the others.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is too small, or ``pad_id`` is not an id of the vocabulary.

    Example:
        >>> T5Config(n_layers=2).d_head
        64

    Source:
        Raffel et al. 2020, arXiv:1910.10683, section 3.7.
    """

    vocab_size: int = 32128
    d_model: int = 512
    n_heads: int = 8
    d_head: int = 64  # the heads together need not be as wide as the model
    d_ff: int = 2048
    n_layers: int = 6  # of the encoder, and of the decoder as well
    dropout: float = 0.1
    gated: bool = False  # a feed-forward network with a gate by GELU, in place of ReLU
    tied: bool = True  # the embeddings serve as the weights of the head, too
    pad_id: int = 0  # it also starts each target

    def __post_init__(self) -> None:
        check_sizes(vocab_size=self.vocab_size, d_model=self.d_model, n_heads=self.n_heads)
        check_sizes(d_head=self.d_head, d_ff=self.d_ff)
        check_sizes(at_least=0, n_layers=self.n_layers)
        if not 0 <= self.pad_id < self.vocab_size:
            raise ValueError(
                f"pad_id={self.pad_id} must be one of the {self.vocab_size} ids of the vocabulary"
            )


_V1_1 = partial(T5Config, gated=True, tied=False)
T5_CONFIGS = MappingProxyType(
    {
        "small": T5Config(),
        "base": T5Config(d_model=768, n_heads=12, d_ff=3072, n_layers=12),
        "large": T5Config(d_model=1024, n_heads=16, d_ff=4096, n_layers=24),
        "3b": T5Config(d_model=1024, n_heads=32, d_head=128, d_ff=16384, n_layers=24),
        "11b": T5Config(d_model=1024, n_heads=128, d_head=128, d_ff=65536, n_layers=24),
        "v1.1-small": _V1_1(n_heads=6, d_ff=1024, n_layers=8),
        "v1.1-base": _V1_1(d_model=768, n_heads=12, n_layers=12),
        "v1.1-large": _V1_1(d_model=1024, n_heads=16, d_ff=2816, n_layers=24),
        "v1.1-xl": _V1_1(d_model=2048, n_heads=32, d_ff=5120, n_layers=24),
        "v1.1-xxl": _V1_1(d_model=4096, n_heads=64, d_ff=10240, n_layers=24),
    }
)
"""Every published size, from the paper and of version 1.1, which has a gate and is not tied."""


class T5Layer(nn.Module):
    """Self-attention, cross-attention if it crosses, and the feed-forward network.

    Each stands in a residual connection that normalises first, without a mean and without a bias:
    there is no bias vector anywhere. Scores are not divided by the root of ``d_head``; T5 starts
    with smaller weights instead.

    Args:
        config: The sizes.
        crosses: Whether the layer asks a memory, as the decoder's do.

    Example:
        >>> config = T5Config(d_model=8, n_heads=2, d_head=3, d_ff=16)
        >>> layer = T5Layer(config, crosses=True)
        >>> layer(torch.randn(1, 5, 8), torch.randn(1, 7, 8)).shape
        torch.Size([1, 5, 8])

    Source:
        Raffel et al. 2020, arXiv:1910.10683, section 2.1. The gate: Shazeer 2020, arXiv:2002.05202.
    """

    def __init__(self, config: T5Config, *, crosses: bool) -> None:
        super().__init__()
        attention = partial(
            MultiHeadAttention,
            config.d_model,
            config.n_heads,
            d_head=config.d_head,
            bias=False,
            scale=1.0,
        )
        residual = partial(
            PreNorm, config.d_model, dropout=config.dropout, eps=_EPS, norm=nn.RMSNorm
        )
        self.self_attention = attention()
        self.around_self_attention = residual()
        self.cross_attention = attention() if crosses else None
        self.around_cross_attention = residual() if crosses else None
        feed_forward = GatedFeedForward if config.gated else FeedForward
        bend = nn.GELU(approximate="tanh") if config.gated else nn.ReLU()
        bend = nn.Sequential(bend, Dropout(config.dropout))  # T5 drops in between, too
        self.feed_forward = feed_forward(config.d_model, config.d_ff, activation=bend, bias=False)
        self.around_feed_forward = residual()

    def forward(
        self,
        x: Float[Tensor, "batch q_len d_model"],
        memory: Float[Tensor, "batch k_len d_model"] | KeysAndValues | None = None,
        *,
        bias: Float[Tensor, "#batch #heads #q_len #total_len"] | None = None,
        mask: Bool[Tensor, "#batch #heads #q_len #total_len"] | None = None,
        memory_mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch q_len d_model"]:
        """Let the tokens look at each other, then at the memory, then think by themselves.

        Args:
            x: The tokens.
            memory: The encoder's output, or its keys and values from
                ``layer.cross_attention.keys_and_values``.
            bias: Added to the scores of self-attention, in nats. Cross-attention has none.
            mask: Who may attend to whom among the tokens, cached ones included.
            memory_mask: Which tokens of the memory may be seen.
            cache: Keys and values of earlier tokens.

        Returns:
            One vector for each token of ``x``.

        Raises:
            ValueError: If there is a memory and the layer does not cross, or the other way round.
        """
        if (memory is None) != (self.cross_attention is None):
            raise ValueError(
                "a layer that crosses needs a memory, and one that does not can't read it"
            )
        x = self.around_self_attention(
            x, lambda y: self.self_attention(y, mask=mask, bias=bias, cache=cache)
        )
        if self.cross_attention is not None:
            x = self.around_cross_attention(
                x, lambda y: self.cross_attention(y, memory, mask=memory_mask)
            )
        return self.around_feed_forward(x, self.feed_forward)


class T5(EncoderDecoder):
    r"""Read a text, write a text: translation, summary and answer are all the same to it.

    .. math:: logits = \frac{h}{\sqrt{d_{model}}}\, V^\top

    :math:`h` is the decoder's vector for a token, and :math:`V` the embeddings. With
    ``tied=False``, as in version 1.1, the head has weights of its own and nothing is divided.

    Use bfloat16 rather than float16 to save memory: with the published weights, numbers between
    the layers grow beyond 65504, where float16 ends, and turn to infinity.

    Args:
        config: The sizes.

    Example:
        >>> config = T5Config(vocab_size=11, d_model=8, n_heads=2, d_head=3, d_ff=16, n_layers=1)
        >>> model = T5(config)
        >>> source, labels = torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9, 1]])
        >>> model(source, model.shift_right(labels)).shape
        torch.Size([1, 3, 11])

        The decoder writes with :mod:`attnlib.generate`, from the pad token on:

        >>> from attnlib.generate import greedy
        >>> cache, first = model.eval().start(source, max_len=4), torch.tensor([[config.pad_id]])
        >>> greedy(model.decode, first, max_new_tokens=4, cache=cache).shape
        torch.Size([1, 4])

    Source:
        Raffel et al. 2020, arXiv:1910.10683. Checked against Hugging Face's
        ``T5ForConditionalGeneration``, forward and gradient of every parameter. The original also
        drops attention weights in training; see
        :class:`~attnlib.layers.MultiHeadAttention`.
    """

    def __init__(self, config: T5Config) -> None:
        embed = TokenEmbedding(
            nn.Embedding(config.vocab_size, config.d_model), dropout=config.dropout
        )
        norm = partial(nn.RMSNorm, config.d_model, eps=_EPS)
        head = _DividingHead if config.tied else nn.Linear
        super().__init__(
            config.n_heads,
            embed,
            embed,
            encoder=[T5Layer(config, crosses=False) for _ in range(config.n_layers)],
            decoder=[T5Layer(config, crosses=True) for _ in range(config.n_layers)],
            to_logits=head(config.d_model, config.vocab_size, bias=False),
            encoder_norm=nn.Sequential(norm(), Dropout(config.dropout)),
            decoder_norm=nn.Sequential(norm(), Dropout(config.dropout)),
            encoder_positions=T5Bias(config.n_heads),
            decoder_positions=T5Bias(config.n_heads, bidirectional=False),
        )
        self.config = config
        self._initialise()
        if config.tied:
            self.to_logits.weight = embed.tokens.weight

    def shift_right(self, labels: Int[Tensor, "batch q_len"]) -> Int[Tensor, "batch q_len"]:
        """Make the decoder's input from the labels: the pad token, then all but the last label.

        Labels of -100, which ``cross_entropy`` leaves out, become padding.

        Example:
            >>> config = T5Config(11, d_model=8, n_heads=2, d_head=3, d_ff=16, n_layers=1)
            >>> T5(config).shift_right(torch.tensor([[8, 9, 1, -100, -100]]))
            tensor([[0, 8, 9, 1, 0]])
        """
        check_ids("labels", labels)
        pad_id = self.config.pad_id
        return shift_right(labels, start_id=pad_id, pad_id=pad_id)

    @torch.no_grad()
    def _initialise(self) -> None:
        """Start as the authors' code does: each map keeps the size, and queries come out small.

        A query is smaller by the root of ``d_head``: that is where the division of the scores went.
        """
        nn.init.normal_(self.embed_source.tokens.weight)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
            elif isinstance(module, T5Bias):
                nn.init.normal_(module.table, std=self.config.d_model**-0.5)
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.to_query.weight *= self.config.d_head**-0.5


class _DividingHead(nn.Linear):
    """A head that shares its weights with embeddings of size 1: it divides before it multiplies."""

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length vocab_size"]:
        return super().forward(x * self.in_features**-0.5)


def t5_state_from_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the parameters of Hugging Face's ``T5ForConditionalGeneration`` to those of ours.

    Their stacks repeat the embeddings under other names; those are left out, and so is the bias of
    cross-attention in old checkpoints, which was never used. Where a head is missing, it is tied.

    Args:
        state: The ``state_dict()`` of a ``T5ForConditionalGeneration``, or what its file holds.

    Returns:
        A state for ``T5.load_state_dict``; the tensors are shared, not copied.

    Raises:
        ValueError: If a name is not one of ``T5ForConditionalGeneration``'s.

    Example:
        >>> theirs = {"decoder.block.2.layer.1.EncDecAttention.k.weight": torch.zeros(6, 8)}
        >>> t5_state_from_hugging_face(theirs).keys()
        dict_keys(['decoder.2.cross_attention.to_key.weight'])
    """
    ours = {_our_name(name): x for name, x in state.items() if name not in _LEFT_OUT}
    if "shared.weight" in state:
        ours |= dict.fromkeys(_EMBEDDINGS, state["shared.weight"])
        ours.setdefault("to_logits.weight", state["shared.weight"])
    return ours


def _our_name(name: str) -> str:
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    match name.removesuffix(".weight").split(".", 5):  # decoder.block.3.layer.1.EncDecAttention.k
        case ["encoder" | "decoder" as stack, "block", number, "layer", place, part]:
            if part == "SelfAttention.relative_attention_bias" and number == "0":
                return f"{stack}_positions.table"
            if part == "layer_norm" and place in _NORMS[stack]:
                return f"{stack}.{number}.{_NORMS[stack][place]}.norm.weight"
            if part in _PROJECTIONS:
                return f"{stack}.{number}.{_PROJECTIONS[part]}.weight"
    raise ValueError(
        f"{name} is no parameter of a T5ForConditionalGeneration that T5 knows; take the state of "
        "the whole model, head included"
    )


_EMBEDDINGS = ("embed_source.tokens.weight", "embed_target.tokens.weight")
_LEFT_OUT = (
    "shared.weight",  # it goes to both embeddings
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
)
_WHOLE_MODEL = {
    "encoder.final_layer_norm.weight": "encoder_norm.0.weight",
    "decoder.final_layer_norm.weight": "decoder_norm.0.weight",
    "lm_head.weight": "to_logits.weight",
}
_NORMS = {
    "encoder": {"0": "around_self_attention", "1": "around_feed_forward"},
    "decoder": {
        "0": "around_self_attention",
        "1": "around_cross_attention",
        "2": "around_feed_forward",
    },
}
_PROJECTIONS = {
    "SelfAttention.q": "self_attention.to_query",
    "SelfAttention.k": "self_attention.to_key",
    "SelfAttention.v": "self_attention.to_value",
    "SelfAttention.o": "self_attention.to_output",
    "EncDecAttention.q": "cross_attention.to_query",
    "EncDecAttention.k": "cross_attention.to_key",
    "EncDecAttention.v": "cross_attention.to_value",
    "EncDecAttention.o": "cross_attention.to_output",
    "DenseReluDense.wi": "feed_forward.widen",
    "DenseReluDense.wi_0": "feed_forward.gate",
    "DenseReluDense.wi_1": "feed_forward.widen",
    "DenseReluDense.wo": "feed_forward.narrow",
}
