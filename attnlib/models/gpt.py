"""GPT: the decoder alone. Every token sees itself and those before it, and predicts the next."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlib.cache import KVCache
from attnlib.checks import check_module, check_sizes
from attnlib.dropout import Dropout
from attnlib.efficient.window_attend import WindowAttend
from attnlib.layers import EncoderLayer, PreNorm
from attnlib.models.inputs import (
    _check_window,
    cache_of_each,
    check_ids,
    decoder_mask,
    encoder_mask,
    hide_beyond_window,
)
from attnlib.positions import LearnedEncoding, Positions


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT; the defaults are those of the smallest GPT-2.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If it is not positive.

    Example:
        >>> GPTConfig(n_layers=2).d_model
        768

    Source:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
    """

    vocab_size: int = 50257
    d_model: int = 768
    n_heads: int = 12
    n_layers: int = 12
    d_ff: int = 3072
    max_len: int = 1024
    dropout: float = 0.1
    eps: float = 1e-5
    tied: bool = True  # the embeddings serve as the weights of the head, too
    window: int | None = None  # how many tokens each one sees, itself included; None: all before it

    def __post_init__(self) -> None:
        check_sizes(vocab_size=self.vocab_size, d_model=self.d_model, n_heads=self.n_heads)
        check_sizes(d_ff=self.d_ff, max_len=self.max_len)
        check_sizes(at_least=0, n_layers=self.n_layers)
        if self.window is not None:
            check_sizes(window=self.window)


class GPT(nn.Module):
    """Predict, for each token of a text, the one that comes after it.

    Args:
        config: The sizes.
        positions: Where the tokens learn their place: a module that adds to the embeddings, such as
            :class:`~attnlib.positions.SinusoidalEncoding`, or one that acts inside attention, such
            as :class:`~attnlib.positions.Rope`, which all layers then share. Learned vectors if
            left out, as in GPT-2.
        activation: The bend in the feed-forward network; if left out, GELU in the approximation by
            tanh, as in GPT-2.

    Example:
        >>> model = GPT(GPTConfig(vocab_size=11, d_model=8, n_heads=2, n_layers=1, d_ff=16))
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 11])

    Source:
        Radford et al. 2019, section 2.3. Checked against Hugging Face's ``GPT2LMHeadModel``,
        forward and gradient of every parameter.
    """

    def __init__(
        self,
        config: GPTConfig,
        *,
        positions: nn.Module | None = None,
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if positions is None:
            positions = LearnedEncoding(config.d_model, config.max_len)
        check_module("positions", positions, "Rope(d_head)")
        acts_inside = isinstance(positions, Positions)
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = None if acts_inside else positions
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                config.d_model,
                config.n_heads,
                config.d_ff,
                residual=PreNorm,
                positions=positions if acts_inside else None,
                activation=nn.GELU(approximate="tanh") if activation is None else activation,
                dropout=config.dropout,
                eps=config.eps,
            )
            for _ in range(config.n_layers)
        )
        self.window = config.window
        if config.window is not None:
            for layer in self.layers:
                layer.attention.attend = WindowAttend(config.window)
        self.norm = nn.LayerNorm(config.d_model, eps=config.eps)
        self.to_logits = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self._initialise()
        if config.tied:
            self.to_logits.weight = self.tokens.weight

    def forward(
        self,
        ids: Int[Tensor, "batch length"],
        *,
        padding: Int[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "#batch #heads #length #total_len"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Score every token of the vocabulary as the next one, after each token of the text.

        It is causal by itself: no mask is needed for that.

        Args:
            ids: Token ids; with a cache, only those that are new.
            padding: How many tokens of padding stand in front of each text, the same numbers in
                every call with one cache. Nobody sees them, and positions count from behind them.
            mask: Hides more than the future and that padding: ``padding_mask(lengths, length)``
                where padding stands behind. With a cache its keys are all tokens so far.
            cache: Keys and values of earlier tokens, under ``torch.no_grad()``; those of ``ids``
                are added to it. In a model with a window, a
                :class:`~attnlib.efficient.window_cache.WindowKVCache` keeps no more than that.

        Returns:
            Logits, in nats. Those of padding mean nothing.

        Raises:
            TypeError: If ``padding`` is not a tensor of whole numbers, or ``mask`` is not boolean.
            ValueError: If ``ids`` is not 2-D, empty, or longer than the positions reach;
                ``padding`` is not one number for each text, 0 or more; ``mask`` does not fit; or
                the cache is full, or has another number of layers or another window.
        """
        check_ids("ids", ids, self.config.vocab_size)
        caches = cache_of_each(self.layers, cache)
        offset = 0 if cache is None else cache.length
        mask = self._who_sees_whom(ids, padding, mask, cache)
        x = self.tokens(ids)  # (B, L, D)
        if self.positions is not None:
            x = self.positions(x, offset=offset if padding is None else offset - padding)
        x = self.dropout(x)
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, mask=mask, cache=layer_cache)
        return self.to_logits(self.norm(x))  # (B, L, V)

    def _who_sees_whom(
        self, ids: Tensor, padding: Tensor | None, mask: Tensor | None, cache: KVCache | None
    ) -> Bool[Tensor, "#batch #heads #length #k_len"] | None:
        """The mask for all layers, over the keys that they will have.

        With a window, that of a whole text hides padding alone. The rest is left to
        :class:`~attnlib.efficient.window_attend.WindowAttend`, which needs no matrix for it.
        """
        n_heads, window = self.config.n_heads, self.window
        offset = cache.length if cache is not None else 0
        if window is not None and offset == 0:
            _check_window(cache, window)
            return encoder_mask(ids, n_heads, padding=padding, mask=mask)
        mask = decoder_mask(ids, n_heads, offset=offset, padding=padding, mask=mask)
        return hide_beyond_window(mask, ids, window, cache)

    @torch.no_grad()
    def _initialise(self) -> None:
        """Start like GPT-2: small weights, and smaller ones where layer after layer adds up."""
        nn.init.normal_(self.tokens.weight, std=0.02)
        for module in (*self.layers.modules(), self.to_logits):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for layer in self.layers:
            for last in (layer.attention.to_output, layer.feed_forward.narrow):
                last.weight /= (2 * len(self.layers)) ** 0.5  # 2 residual connections in a layer


def gpt_state_from_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename and cut the parameters of Hugging Face's ``GPT2LMHeadModel`` to those of :class:`GPT`.

    Their linear layers store the transpose of ours, and the projections to query, key and value as
    one. What :class:`GPT` does not have (the causal mask of old checkpoints) is left out.

    Args:
        state: The ``state_dict()`` of a ``GPT2LMHeadModel``.

    Returns:
        A state for ``GPT.load_state_dict``; the tensors are views, not copies.

    Raises:
        ValueError: If a name is not one of ``GPT2LMHeadModel``'s.

    Example:
        >>> fused = {"transformer.h.0.attn.c_attn.bias": torch.arange(6.0)}
        >>> ours = gpt_state_from_hugging_face(fused)
        >>> ours["layers.0.attention.to_key.bias"]
        tensor([2., 3.])
    """
    ours = {}
    for name, tensor in state.items():
        if name in _WHOLE_MODEL:
            ours[_WHOLE_MODEL[name]] = tensor
        elif not name.endswith(_OLD_BUFFERS):
            ours |= _of_layer(name, tensor)
    return ours


def _of_layer(name: str, tensor: Tensor) -> dict[str, Tensor]:
    match name.split(".", 3):  # transformer.h.3.attn.c_attn.weight
        case ["transformer", "h", number, rest]:
            part, _, kind = rest.rpartition(".")
            place = f"layers.{number}"
            if part in _NORMS:
                return {f"{place}.{_NORMS[part]}.{kind}": tensor}
            if part in _PROJECTIONS:
                ours = tensor.T if kind == "weight" else tensor
                pieces = ours.chunk(len(_PROJECTIONS[part]))
                names = [f"{place}.{target}.{kind}" for target in _PROJECTIONS[part]]
                return dict(zip(names, pieces, strict=True))
    raise ValueError(
        f"{name} is no parameter of a GPT2LMHeadModel that GPT knows; take the state of the whole "
        "model, head included"
    )


_WHOLE_MODEL = {
    "transformer.wte.weight": "tokens.weight",
    "transformer.wpe.weight": "positions.encoding",
    "transformer.ln_f.weight": "norm.weight",
    "transformer.ln_f.bias": "norm.bias",
    "lm_head.weight": "to_logits.weight",
}
_NORMS = {"ln_1": "around_attention.norm", "ln_2": "around_feed_forward.norm"}
_PROJECTIONS = {
    "attn.c_attn": ("attention.to_query", "attention.to_key", "attention.to_value"),
    "attn.c_proj": ("attention.to_output",),
    "mlp.c_fc": ("feed_forward.widen",),
    "mlp.c_proj": ("feed_forward.narrow",),
}
_OLD_BUFFERS = (".attn.bias", ".attn.masked_bias")
