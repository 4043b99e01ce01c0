"""BERT: the encoder alone. Every token sees every other one, on both sides."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlib.checks import check_sizes, check_tensor
from attnlib.dropout import Dropout
from attnlib.layers import EncoderLayer
from attnlib.models.inputs import check_ids
from attnlib.positions import LearnedEncoding


@dataclass(frozen=True)
class BertConfig:
    """The sizes of a BERT; the defaults are those of BERT-base.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If it is not positive.

    Example:
        >>> BertConfig(n_layers=2).d_model
        768

    Source:
        Devlin et al. 2019, arXiv:1810.04805, section 3.
    """

    vocab_size: int = 30522
    d_model: int = 768
    n_heads: int = 12
    n_layers: int = 12
    d_ff: int = 3072
    max_len: int = 512
    n_token_types: int = 2  # first or second sentence of a pair
    dropout: float = 0.1
    eps: float = 1e-12
    tied: bool = True  # the embeddings serve as the weights of the head, too; Bert has no head

    def __post_init__(self) -> None:
        check_sizes(vocab_size=self.vocab_size, d_model=self.d_model, n_heads=self.n_heads)
        check_sizes(d_ff=self.d_ff, max_len=self.max_len)
        check_sizes(at_least=0, n_layers=self.n_layers)
        check_sizes(n_token_types=self.n_token_types)


class Bert(nn.Module):
    """Turn token ids into one vector for each token, in the light of the whole sequence.

    Args:
        config: The sizes.

    Example:
        >>> model = Bert(BertConfig(vocab_size=11, d_model=8, n_heads=2, n_layers=1, d_ff=16))
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 8])

    Source:
        Devlin et al. 2019, arXiv:1810.04805. Checked against Hugging Face's ``BertModel``, forward
        and gradient of every parameter.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.token_types = nn.Embedding(config.n_token_types, config.d_model)
        self.positions = LearnedEncoding(config.d_model, config.max_len)
        with torch.no_grad():  # as small as the authors start, so that no table drowns another
            self.tokens.weight.mul_(0.02)
            self.token_types.weight.mul_(0.02)
        self.norm = nn.LayerNorm(config.d_model, eps=config.eps)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                config.d_model,
                config.n_heads,
                config.d_ff,
                activation=nn.GELU(),
                dropout=config.dropout,
                eps=config.eps,
            )
            for _ in range(config.n_layers)
        )

    def forward(
        self,
        ids: Int[Tensor, "batch length"],
        *,
        token_types: Int[Tensor, "batch length"] | None = None,
        mask: Bool[Tensor, "#batch #heads #length #length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Encode a batch of token ids.

        Args:
            ids: Token ids.
            token_types: Which sentence of a pair each token belongs to; 0 if left out.
            mask: ``True`` where a token may attend; ``padding_mask(lengths, length)`` in a batch
                of unequal lengths.

        Returns:
            One vector for each token. Those of padding mean nothing.

        Raises:
            TypeError: If ``ids`` or ``token_types`` is not a tensor of whole numbers.
            ValueError: If ``ids`` is not 2-D, empty, not of the vocabulary, or longer than
                ``max_len``, or ``token_types`` has another shape or names a type there is not.
        """
        check_ids("ids", ids, self.config.vocab_size)
        token_types = torch.zeros_like(ids) if token_types is None else token_types
        check_tensor("token_types", token_types)
        if token_types.shape != ids.shape:
            raise ValueError(
                f"token_types must say one type for each id, in shape {tuple(ids.shape)}, got "
                f"shape {tuple(token_types.shape)}"
            )
        check_ids("token_types", token_types, self.config.n_token_types)
        x = self.positions(self.tokens(ids) + self.token_types(token_types))
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, mask=mask)
        return x


class BertForMaskedLM(nn.Module):
    r"""A BERT that guesses the tokens that were hidden from it: what it is pretrained on.

    .. math:: logits = \mathrm{LayerNorm}(\mathrm{GELU}(h W + b))\, V^\top + b_{vocab}

    :math:`h` is BERT's vector for a token. Each row of :math:`V` stands for a token of the
    vocabulary; the better it fits, the higher the logit. Usually :math:`V` is the very table that
    the input is embedded with (tied); otherwise it is learned on its own.

    Args:
        config: The sizes.

    Example:
        >>> config = BertConfig(vocab_size=11, d_model=8, n_heads=2, n_layers=1, d_ff=16)
        >>> logits = BertForMaskedLM(config)(torch.tensor([[7, 3, 7]]))  # 3 hides a token
        >>> logits.shape
        torch.Size([1, 3, 11])
        >>> labels = torch.tensor([[-100, 5, -100]])  # cross_entropy leaves out -100
        >>> F.cross_entropy(logits.flatten(0, 1), labels.flatten()).item() > 0
        True

    Source:
        Devlin et al. 2019, arXiv:1810.04805, section 3.1. Checked against Hugging Face's
        ``BertForMaskedLM``, forward and gradient of every parameter.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = Bert(config)
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, eps=config.eps)
        self.rows = None
        if not config.tied:
            self.rows = nn.Parameter(torch.randn(config.vocab_size, config.d_model) * 0.02)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self,
        ids: Int[Tensor, "batch length"],
        *,
        token_types: Int[Tensor, "batch length"] | None = None,
        mask: Bool[Tensor, "#batch #heads #length #length"] | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Score the whole vocabulary for each place in the sequence.

        Args:
            ids: Token ids, some of them replaced by that of the mask token.
            token_types: As for :class:`Bert`.
            mask: As for :class:`Bert`. It is about attention, not about the tokens to guess.

        Returns:
            Logits, in nats. Those at padding mean nothing.

        Raises:
            TypeError: As :class:`Bert`.
            ValueError: As :class:`Bert`.
        """
        x = self.bert(ids, token_types=token_types, mask=mask)
        x = self.norm(F.gelu(self.transform(x)))  # (B, L, D)
        rows = self.bert.tokens.weight if self.rows is None else self.rows  # (V, D)
        return F.linear(x, rows, self.bias)


def bert_state_from_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the parameters of Hugging Face's ``BertModel`` to those of :class:`Bert`.

    What :class:`Bert` does not have (the pooler, the list of position ids) is left out.

    Args:
        state: The ``state_dict()`` of a ``BertModel``.

    Returns:
        A state for ``Bert.load_state_dict``; the tensors are shared, not copied.

    Raises:
        ValueError: If a name is not one of ``BertModel``'s.

    Example:
        >>> bert_state_from_hugging_face({"embeddings.LayerNorm.bias": torch.zeros(4)}).keys()
        dict_keys(['norm.bias'])
    """
    return {
        _our_name(name): tensor
        for name, tensor in state.items()
        if not name.startswith("pooler.") and name != "embeddings.position_ids"
    }


def bert_mlm_state_from_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the parameters of Hugging Face's ``BertForMaskedLM`` to those of ours.

    Rows that equal the input embeddings are left out: they are tied, and the state fits a model
    with ``tied=True``. What guesses the next sentence in a ``BertForPreTraining`` is left out too.

    Args:
        state: The ``state_dict()`` of a ``BertForMaskedLM``, or what its file holds.

    Returns:
        A state for ``BertForMaskedLM.load_state_dict``; the tensors are shared, not copied.

    Raises:
        ValueError: If a name is not one of ``BertForMaskedLM``'s.

    Example:
        >>> bert_mlm_state_from_hugging_face({"cls.predictions.bias": torch.zeros(4)}).keys()
        dict_keys(['bias'])
    """
    elsewhere = ("bert.", "cls.seq_relationship.")
    unknown = [n for n in state if n not in _HEAD and not n.startswith(elsewhere)]
    if unknown:
        raise ValueError(
            f"{unknown[0]} is no parameter of a BertForMaskedLM; the state of a BertModel without "
            "a head is for bert_state_from_hugging_face"
        )
    inner = {k.removeprefix("bert."): x for k, x in state.items() if k.startswith("bert.")}
    ours = {f"bert.{name}": x for name, x in bert_state_from_hugging_face(inner).items()}
    ours |= {_HEAD[name]: state[name] for name in _HEAD if name in state}
    embeddings = ours.get("bert.tokens.weight")
    if "rows" in ours and embeddings is not None and torch.equal(ours["rows"], embeddings):
        del ours["rows"]
    return ours


def _our_name(name: str) -> str:
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    match name.split(".", 3):  # encoder.layer.3.output.dense.bias
        case ["encoder", "layer", number, rest]:
            part, _, weight_or_bias = rest.rpartition(".")
            if part in _LAYER:
                return f"layers.{number}.{_LAYER[part]}.{weight_or_bias}"
    raise ValueError(
        f"{name} is no parameter of a BertModel that Bert knows; from a model with a head on top "
        "take the state of its .bert"
    )


_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "tokens.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.position_embeddings.weight": "positions.encoding",
    "embeddings.LayerNorm.weight": "norm.weight",
    "embeddings.LayerNorm.bias": "norm.bias",
}
_LAYER = {
    "attention.self.query": "attention.to_query",
    "attention.self.key": "attention.to_key",
    "attention.self.value": "attention.to_value",
    "attention.output.dense": "attention.to_output",
    "attention.output.LayerNorm": "around_attention.norm",
    "intermediate.dense": "feed_forward.widen",
    "output.dense": "feed_forward.narrow",
    "output.LayerNorm": "around_feed_forward.norm",
}
_HEAD = {  # in this order: where there are two biases, the decoder's is the one in use
    "cls.predictions.transform.dense.weight": "transform.weight",
    "cls.predictions.transform.dense.bias": "transform.bias",
    "cls.predictions.transform.LayerNorm.weight": "norm.weight",
    "cls.predictions.transform.LayerNorm.bias": "norm.bias",
    "cls.predictions.decoder.weight": "rows",
    "cls.predictions.bias": "bias",
    "cls.predictions.decoder.bias": "bias",
}
