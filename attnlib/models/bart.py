"""BART: a Transformer that learns to restore texts which were damaged, then to write others."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlib.checks import check_sizes
from attnlib.layers import DecoderLayer, EncoderLayer
from attnlib.models.encoder_decoder import EncoderDecoder, TokenEmbedding
from attnlib.positions import LearnedEncoding


@dataclass(frozen=True)
class BartConfig:
    """The sizes of a BART; the defaults are those of BART-large.

    The base one is ``BartConfig(d_model=768, n_heads=12, n_layers=6, d_ff=3072)``.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is too small.

    Example:
        >>> BartConfig(n_layers=2).d_model
        1024

    Source:
        Lewis et al. 2020, arXiv:1910.13461, sections 2.1 and 5.
    """

    vocab_size: int = 50265
    d_model: int = 1024
    n_heads: int = 16
    n_layers: int = 12  # in the encoder, and as many in the decoder
    d_ff: int = 4096
    max_len: int = 1024
    dropout: float = 0.1
    scaled: bool = False  # multiply the embeddings by the root of d_model, as in the Transformer
    tied: bool = True  # one table for source, target and head

    def __post_init__(self) -> None:
        check_sizes(vocab_size=self.vocab_size, d_model=self.d_model, n_heads=self.n_heads)
        check_sizes(d_ff=self.d_ff, max_len=self.max_len)
        check_sizes(at_least=0, n_layers=self.n_layers)


class Bart(EncoderDecoder):
    r"""Read a text, and write another one: a summary, or the same text without its damage.

    It is the original Transformer with learned positions, a norm right after the embeddings, and
    GELU for ReLU:

    .. math:: x = \mathrm{LayerNorm}(E_{id} + P_{position})

    The texts that it writes begin with the token that ends the others, id 2:
    ``model(source, shift_right(labels, start_id=2, pad_id=1))``.

    Args:
        config: The sizes.

    Example:
        >>> from attnlib.models.encoder_decoder import shift_right
        >>> model = Bart(BartConfig(11, d_model=8, n_heads=2, n_layers=1, d_ff=16))
        >>> labels = torch.tensor([[7, 5, 2]])
        >>> model(torch.tensor([[0, 7, 3, 2]]), shift_right(labels, start_id=2, pad_id=1)).shape
        torch.Size([1, 3, 11])

    Source:
        Lewis et al. 2020, arXiv:1910.13461. Checked against Hugging Face's
        ``BartForConditionalGeneration``, forward and gradient of every parameter.
    """

    def __init__(self, config: BartConfig) -> None:
        d_model, dropout = config.d_model, config.dropout
        source = nn.Embedding(config.vocab_size, d_model)
        target = source if config.tied else nn.Embedding(config.vocab_size, d_model)
        sizes = (d_model, config.n_heads, config.d_ff)

        def embedding(tokens: nn.Embedding) -> TokenEmbedding:
            return TokenEmbedding(
                tokens,
                LearnedEncoding(d_model, config.max_len),
                scale=d_model**0.5 if config.scaled else 1.0,
                norm=nn.LayerNorm(d_model),
                dropout=dropout,
            )

        def layers(kind: type[nn.Module]) -> list[nn.Module]:
            each = range(config.n_layers)
            return [kind(*sizes, activation=nn.GELU(), dropout=dropout) for _ in each]

        super().__init__(
            config.n_heads,
            embedding(source),
            embedding(target),
            encoder=layers(EncoderLayer),
            decoder=layers(DecoderLayer),
            to_logits=nn.Linear(d_model, config.vocab_size),
        )
        self.config = config
        self._initialise()
        if config.tied:
            self.to_logits.weight = source.weight
        self.to_logits.bias.requires_grad_(False)  # not learned: a checkpoint may forbid tokens so

    @torch.no_grad()
    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Embedding | nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)


def bart_state_from_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename and cut the parameters of ``BartForConditionalGeneration`` to those of :class:`Bart`.

    Their positions begin in the third row of the table; the two rows before, which nobody looks up,
    are left out. A file has each tied table once: it is handed to all who share it.

    Args:
        state: The ``state_dict()`` of a ``BartForConditionalGeneration``, or what its file holds.

    Returns:
        A state for ``Bart.load_state_dict``; the tensors are views, not copies.

    Raises:
        ValueError: If a name is not one of ``BartForConditionalGeneration``'s.

    Example:
        >>> theirs = {"model.encoder.embed_positions.weight": torch.arange(4.0)[:, None]}
        >>> bart_state_from_hugging_face(theirs)["embed_source.positions.encoding"].flatten()
        tensor([2., 3.])
    """
    ours = {}
    if "model.shared.weight" in state:
        ours = dict.fromkeys(_TIED, state["model.shared.weight"])
    for name, tensor in state.items():
        if name.endswith("embed_positions.weight"):
            tensor = tensor[2:]
        if name == "final_logits_bias":
            tensor = tensor[0]  # (1, V) there
        if name != "model.shared.weight":
            ours[_our_name(name)] = tensor
    return ours


def _our_name(name: str) -> str:
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    match name.split(".", 4):  # model.decoder.layers.3.encoder_attn.k_proj.weight
        case ["model", "encoder" | "decoder" as half, "layers", number, rest]:
            part, _, kind = rest.rpartition(".")
            if part in _PARTS[half]:
                return f"{half}.{number}.{_PARTS[half][part]}.{kind}"
    raise ValueError(
        f"{name} is no parameter of a BartForConditionalGeneration; take the state of the whole "
        "model, head included"
    )


def _attention(theirs: str, ours: str) -> dict[str, str]:
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    return {f"{theirs}.{their_part}": f"{ours}.to_{part}" for their_part, part in names.items()}


_TIED = ("embed_source.tokens.weight", "embed_target.tokens.weight", "to_logits.weight")
_WHOLE_MODEL = {
    "model.encoder.embed_tokens.weight": "embed_source.tokens.weight",
    "model.encoder.embed_positions.weight": "embed_source.positions.encoding",
    "model.encoder.layernorm_embedding.weight": "embed_source.norm.weight",
    "model.encoder.layernorm_embedding.bias": "embed_source.norm.bias",
    "model.decoder.embed_tokens.weight": "embed_target.tokens.weight",
    "model.decoder.embed_positions.weight": "embed_target.positions.encoding",
    "model.decoder.layernorm_embedding.weight": "embed_target.norm.weight",
    "model.decoder.layernorm_embedding.bias": "embed_target.norm.bias",
    "lm_head.weight": "to_logits.weight",
    "final_logits_bias": "to_logits.bias",
}
_FEED_FORWARD = {
    "fc1": "feed_forward.widen",
    "fc2": "feed_forward.narrow",
    "final_layer_norm": "around_feed_forward.norm",
}
_PARTS = {
    "encoder": {
        **_attention("self_attn", "attention"),
        "self_attn_layer_norm": "around_attention.norm",
        **_FEED_FORWARD,
    },
    "decoder": {
        **_attention("self_attn", "self_attention"),
        "self_attn_layer_norm": "around_self_attention.norm",
        **_attention("encoder_attn", "cross_attention"),
        "encoder_attn_layer_norm": "around_cross_attention.norm",
        **_FEED_FORWARD,
    },
}
