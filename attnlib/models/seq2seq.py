"""Sequence to sequence with recurrent networks, before the Transformer.

An encoder reads the source. A decoder writes the target, a token at a time. What the decoder knows
of the source at a step is its *context*: the same fixed vector at every step
(:class:`FixedContext`), or a new look at all of the source (:class:`AttentionContext`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlib.checks import check_sizes
from attnlib.dropout import Dropout
from attnlib.masks import padding_mask
from attnlib.models.inputs import check_ids
from attnlib.recurrent import GRU, AdditiveAttention, Recurrent


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The sizes of a recurrent sequence-to-sequence model; the defaults are Bahdanau's.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, or the three special ids are not three ids of the
            target vocabulary.

    Example:
        >>> Seq2SeqConfig(source_vocab_size=50, target_vocab_size=60).d_hidden
        1000

    Source:
        Bahdanau et al. 2015, arXiv:1409.0473, section 4.1 and appendix A.2.3.
    """

    source_vocab_size: int = 30000
    target_vocab_size: int = 30000
    d_model: int = 620  # width of an embedding
    d_hidden: int = 1000  # width of a state
    d_attention: int = 1000  # width in which additive attention compares
    dropout: float = 0.0
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        check_sizes(source_vocab_size=self.source_vocab_size, d_model=self.d_model)
        check_sizes(target_vocab_size=self.target_vocab_size, d_hidden=self.d_hidden)
        special = {self.pad_id, self.bos_id, self.eos_id}
        if len(special) < 3 or not special <= set(range(self.target_vocab_size)):
            raise ValueError(
                f"pad_id={self.pad_id}, bos_id={self.bos_id} and eos_id={self.eos_id} must be "
                f"three different ids below target_vocab_size={self.target_vocab_size}"
            )


class Encoded(NamedTuple):
    """What the encoder hands to the decoder.

    ``memory`` holds one vector for each token, ``summary`` the state after the last one: the fixed
    vector. ``mask`` hides the padding.

    Example:
        >>> encoder = Encoder(11, GRU(3, 5), d_model=3)
        >>> encoded = encoder(torch.tensor([[4, 9, 0]]), torch.tensor([2]))
        >>> torch.equal(encoded.memory[:, 1], encoded.summary), encoded.mask.flatten().tolist()
        (True, [True, True, False])
    """

    memory: Float[Tensor, "batch k_len d_memory"]
    summary: Float[Tensor, "batch d_memory"]
    mask: Bool[Tensor, "batch 1 1 k_len"]


Look = Callable[[Float[Tensor, "batch d_hidden"]], Float[Tensor, "batch d_memory"]]


class FixedContext(nn.Module):
    """The same vector at every step, however long the source was.

    Args:
        d_hidden: Not needed here; :class:`AttentionContext` has the same arguments.
        d_memory: Not needed here.
        d_attention: Not needed here.

    Example:
        >>> mask = torch.ones(1, 1, 1, 4, dtype=torch.bool)
        >>> source = Encoded(torch.ones(1, 4, 3), torch.full((1, 3), 7.0), mask)
        >>> look = FixedContext(5, 3, 8)(source)
        >>> look(torch.zeros(1, 5))
        tensor([[7., 7., 7.]])

    Source:
        Cho et al. 2014, arXiv:1406.1078, section 2.2.
    """

    def __init__(self, d_hidden: int, d_memory: int, d_attention: int) -> None:
        super().__init__()

    def forward(self, source: Encoded) -> Look:
        """Return a function that gives the summary of the source, whatever the decoder's state."""
        return lambda hidden: source.summary


class AttentionContext(nn.Module):
    """A new look at the source at every step, by additive attention from the decoder's state.

    Args:
        d_hidden: Width of the decoder's state.
        d_memory: Width of the encoder's outputs.
        d_attention: Width in which the two are compared.

    Example:
        >>> mask = torch.ones(1, 1, 1, 4, dtype=torch.bool)
        >>> source = Encoded(torch.randn(1, 4, 3), torch.zeros(1, 3), mask)
        >>> look = AttentionContext(5, 3, 8)(source)
        >>> look(torch.zeros(1, 5)).shape
        torch.Size([1, 3])

    Source:
        Bahdanau et al. 2015, arXiv:1409.0473, section 3.1.
    """

    def __init__(self, d_hidden: int, d_memory: int, d_attention: int) -> None:
        super().__init__()
        self.attention = AdditiveAttention(d_hidden, d_memory, d_attention)

    def forward(self, source: Encoded) -> Look:
        """Return a function that gives the average of the source that a state asks for."""
        memory, _, mask = source
        keys = self.attention.to_key(memory)  # once: the source stays the same at every step
        return lambda hidden: self.attention(hidden[:, None], memory, keys=keys, mask=mask)[:, 0]


class Encoder(nn.Module):
    """Embed the source and read it with a recurrent network.

    Args:
        vocab_size: Number of token ids.
        reader: The network that reads: :class:`~attnlib.recurrent.Recurrent` or
            :class:`~attnlib.recurrent.Bidirectional`.
        d_model: Width of the embeddings.
        dropout: Probability that a number of an embedding is dropped in training.

    Example:
        >>> encoder = Encoder(11, GRU(3, 5), d_model=3)
        >>> encoder(torch.tensor([[4, 9]]), torch.tensor([2])).memory.shape
        torch.Size([1, 2, 5])
    """

    def __init__(
        self, vocab_size: int, reader: nn.Module, *, d_model: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.dropout = Dropout(dropout)
        self.reader = reader

    def forward(self, ids: Int[Tensor, "batch k_len"], lengths: Int[Tensor, " batch"]) -> Encoded:
        """Read a batch of sources.

        Raises:
            TypeError: If ``ids`` or ``lengths`` is not a tensor of whole numbers.
            ValueError: If ``ids`` is not 2-D, holds no token or one that is not in the vocabulary,
                or a length does not fit.
        """
        check_ids("source", ids, self.tokens.num_embeddings)
        memory, state = self.reader(self.dropout(self.tokens(ids)), lengths=lengths)
        return Encoded(memory, state[0], padding_mask(lengths, ids.shape[1]))


class Decoder(nn.Module):
    r"""Write the target one token at a time, looking at the source through a context.

    .. math::
        \begin{aligned}
        c_t &= \mathrm{context}(s_{t-1}, \mathrm{source}) \\
        s_t &= \mathrm{cell}([y_{t-1}; c_t],\; s_{t-1}) \\
        \mathrm{logits}_t &= W [s_t; y_{t-1}; c_t] + b
        \end{aligned}

    The state starts from the encoder's summary, :math:`s_0 = \tanh(W_0\, \mathrm{summary} + b_0)`.
    The logits come from one linear map; Bahdanau puts a maxout layer in between.

    Args:
        vocab_size: Number of token ids.
        writer: The recurrent network that writes; its inputs are ``d_model + d_memory`` wide.
        context: What it knows of the source at each step.
        d_model: Width of the embeddings.
        dropout: Probability that a number of an embedding, or of what the logits are made from,
            is dropped in training.

    Raises:
        ValueError: If ``writer`` has no room for a context beside the embedding.

    Example:
        >>> encoder = Encoder(11, GRU(3, 5), d_model=3)
        >>> decoder = Decoder(13, GRU(3 + 5, 7), FixedContext(7, 5, 0), d_model=3)
        >>> source = encoder(torch.tensor([[4, 9, 6]]), torch.tensor([3]))
        >>> state, look = decoder.start(source)
        >>> logits, state = decoder(torch.tensor([[1, 8]]), state, look)
        >>> logits.shape
        torch.Size([1, 2, 13])

    Source:
        Bahdanau et al. 2015, arXiv:1409.0473, appendix A.2.2.
    """

    def __init__(
        self,
        vocab_size: int,
        writer: Recurrent,
        context: nn.Module,
        *,
        d_model: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        d_hidden, d_memory = writer.cell.d_hidden, writer.cell.d_input - d_model
        if d_memory < 1:
            raise ValueError(
                "the writer reads embedding and context side by side, so its inputs must be wider "
                f"than d_model={d_model}, got {writer.cell.d_input}"
            )
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.dropout = Dropout(dropout)
        self.context = context
        self.writer = writer
        self.to_first_state = nn.ModuleList(
            nn.Linear(d_memory, d_hidden) for _ in range(writer.cell.n_states)
        )
        self.to_logits = nn.Linear(d_hidden + d_model + d_memory, vocab_size)

    def start(self, source: Encoded) -> tuple[tuple[Float[Tensor, "batch d_hidden"], ...], Look]:
        """Return the state before the first token, and the way to look at this source."""
        state = tuple(torch.tanh(layer(source.summary)) for layer in self.to_first_state)
        return state, self.context(source)

    def forward(
        self,
        ids: Int[Tensor, "batch q_len"],
        state: tuple[Float[Tensor, "batch d_hidden"], ...],
        look: Look,
    ) -> tuple[
        Float[Tensor, "batch q_len vocab_size"], tuple[Float[Tensor, "batch d_hidden"], ...]
    ]:
        """Read tokens that are written, and give logits for the one after each of them.

        Args:
            ids: In training the whole target from its start token on (teacher forcing); in
                generation the last token.
            state: From :meth:`start`, or from the previous call.
            look: From :meth:`start`.

        Returns:
            ``(logits, state)``.

        Raises:
            TypeError: If ``ids`` is not a tensor of whole numbers.
            ValueError: If ``ids`` is not 2-D, holds no token or one that is not in the vocabulary,
                or has another batch than the source.
        """
        check_ids("target", ids, self.tokens.num_embeddings)
        if len(ids) != len(state[0]):
            raise ValueError(f"there are {len(state[0])} sources, but {len(ids)} targets")
        embedded = self.dropout(self.tokens(ids))  # (B, Lq, D)
        seen = []
        for previous in embedded.unbind(dim=1):
            context = look(state[0])  # (B, Dm)
            state = self.writer.cell(torch.cat([previous, context], dim=-1), state)
            seen.append(torch.cat([state[0], previous, context], dim=-1))
        return self.to_logits(self.dropout(torch.stack(seen, dim=1))), state


class Seq2Seq(nn.Module):
    """Read one sequence, then write another.

    Args:
        config: The sizes.
        recurrent: Which network writes, and reads: :class:`~attnlib.recurrent.RNN`,
            :class:`~attnlib.recurrent.LSTM` or :class:`~attnlib.recurrent.GRU`.
        reader: Which network reads, if another one; ``partial(Bidirectional, GRU)`` in Bahdanau's
            model.
        context: :class:`FixedContext` or :class:`AttentionContext`.

    Example:
        >>> config = Seq2SeqConfig(11, 13, d_model=4, d_hidden=8, d_attention=8)
        >>> model = Seq2Seq(config, context=AttentionContext)
        >>> source, lengths = torch.tensor([[3, 4, 5]]), torch.tensor([3])
        >>> model(source, lengths, torch.tensor([[1, 7]])).shape  # logits after each target token
        torch.Size([1, 2, 13])

    Source:
        Cho et al. 2014, arXiv:1406.1078, and Sutskever et al. 2014, arXiv:1409.3215, with a fixed
        context; Bahdanau et al. 2015, arXiv:1409.0473, with attention.
    """

    def __init__(
        self,
        config: Seq2SeqConfig,
        *,
        recurrent: Callable[[int, int], Recurrent] = GRU,
        reader: Callable[[int, int], nn.Module] | None = None,
        context: type[FixedContext] | type[AttentionContext] = FixedContext,
    ) -> None:
        super().__init__()
        self.config = config
        read = (recurrent if reader is None else reader)(config.d_model, config.d_hidden)
        self.encoder = Encoder(
            config.source_vocab_size, read, d_model=config.d_model, dropout=config.dropout
        )
        self.decoder = Decoder(
            config.target_vocab_size,
            recurrent(config.d_model + read.d_output, config.d_hidden),
            context(config.d_hidden, read.d_output, config.d_attention),
            d_model=config.d_model,
            dropout=config.dropout,
        )

    def forward(
        self,
        source: Int[Tensor, "batch k_len"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch q_len"],
    ) -> Float[Tensor, "batch q_len vocab_size"]:
        """Score the token after each token of a target that is given (teacher forcing).

        Args:
            source: Ids of the source.
            source_lengths: Number of real tokens in each source.
            target: Ids of the target, from the start token on.

        Returns:
            Logits; those at position t have seen the target up to and including t.

        Raises:
            TypeError: If an argument is not a tensor of whole numbers.
            ValueError: If a shape or a length does not fit, or a sequence is empty.
        """
        state, look = self.decoder.start(self.encoder(source, source_lengths))
        return self.decoder(target, state, look)[0]

    @torch.no_grad()
    def greedy(
        self,
        source: Int[Tensor, "batch k_len"],
        source_lengths: Int[Tensor, " batch"],
        *,
        max_len: int,
    ) -> Int[Tensor, "batch q_len"]:
        """Write each target by taking the likeliest token at every step.

        Args:
            source: Ids of the source.
            source_lengths: Number of real tokens in each source.
            max_len: Most tokens to write, the end token included.

        Returns:
            The ids that were written, padded after the end token. It ends where the longest does.

        Raises:
            TypeError: As ``forward``.
            ValueError: As ``forward``, or if ``max_len`` is not positive.
        """
        check_sizes(max_len=max_len)
        state, look = self.decoder.start(self.encoder(source, source_lengths))
        token = source.new_full((source.shape[0], 1), self.config.bos_id)
        ended = torch.zeros_like(token, dtype=torch.bool)
        written = []
        while len(written) < max_len and not ended.all():
            logits, state = self.decoder(token, state, look)
            token = logits.argmax(-1).masked_fill(ended, self.config.pad_id)
            ended = ended | (token == self.config.eos_id)
            written.append(token)
        return torch.cat(written, dim=1)
