"""Encoder and decoder together: what the original Transformer, BART and others have in common."""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlib.cache import KeysAndValues, KVCache
from attnlib.dropout import Dropout
from attnlib.models.inputs import cache_of_each, check_ids, decoder_mask, encoder_mask
from attnlib.positions import T5Bias


class TokenEmbedding(nn.Module):
    r"""Turn token ids into vectors that know where they are.

    .. math:: \mathrm{dropout}(\mathrm{norm}(scale \cdot E_{id} + position))

    Args:
        tokens: The table of vectors; several embeddings may share one.
        positions: Adds the positions, such as :class:`~attnlib.positions.SinusoidalEncoding`;
            nothing is added if left out.
        scale: What the vectors of the table are multiplied by.
        norm: Normalises the sum; it stays as it is if left out.
        dropout: Probability that a number of the result is dropped in training.

    Example:
        >>> from attnlib.positions import LearnedEncoding
        >>> embed = TokenEmbedding(nn.Embedding(11, 8), LearnedEncoding(8, max_len=5))
        >>> embed(torch.tensor([[3, 4]])).shape
        torch.Size([1, 2, 8])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, sections 3.4 and 3.5.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: nn.Module | None = None,
        *,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.scale = scale
        self.norm = nn.Identity() if norm is None else norm
        self.dropout = Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "batch length"], *, offset: int | Int[Tensor, " batch"] = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Embed tokens, the first of which is at position ``offset``.

        Raises:
            TypeError: If ``ids`` are not a tensor of whole numbers.
            ValueError: If one of them is not in the table.
        """
        check_ids("ids", ids, self.tokens.num_embeddings)
        x = self.tokens(ids) * self.scale
        if self.positions is not None:
            x = self.positions(x, offset=offset)
        return self.dropout(self.norm(x))


class EncoderDecoder(nn.Module):
    """Read one sequence with an encoder, and write another one with a decoder that looks at it.

    Args:
        n_heads: Number of heads of each layer.
        embed_source: Turns the ids of the source into vectors; takes the ``offset`` of the first.
        embed_target: The same for the target.
        encoder: The layers of the encoder, such as :class:`~attnlib.layers.EncoderLayer`.
        decoder: The layers of the decoder, such as :class:`~attnlib.layers.DecoderLayer`.
        to_logits: Turns the decoder's vectors into a score for each token.
        encoder_norm: Normalises what the last layer of the encoder gives, if at all.
        decoder_norm: The same for the decoder.
        encoder_positions: A table of distances that all layers of the encoder share; its entries
            are added to the scores of self-attention. None if the embeddings know the positions.
        decoder_positions: The same for the decoder.

    Example:
        >>> from attnlib.layers import DecoderLayer, EncoderLayer
        >>> from attnlib.positions import LearnedEncoding
        >>> embed = TokenEmbedding(nn.Embedding(11, 8), LearnedEncoding(8, max_len=5))
        >>> layers = [EncoderLayer(8, n_heads=2, d_ff=16)], [DecoderLayer(8, n_heads=2, d_ff=16)]
        >>> model = EncoderDecoder(2, embed, embed, *layers, nn.Linear(8, 11))
        >>> model(torch.tensor([[3, 4, 5]]), torch.tensor([[1, 6]])).shape
        torch.Size([1, 2, 11])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, figure 1.
    """

    def __init__(
        self,
        n_heads: int,
        embed_source: nn.Module,
        embed_target: nn.Module,
        encoder: Iterable[nn.Module],
        decoder: Iterable[nn.Module],
        to_logits: nn.Module,
        *,
        encoder_norm: nn.Module | None = None,
        decoder_norm: nn.Module | None = None,
        encoder_positions: T5Bias | None = None,
        decoder_positions: T5Bias | None = None,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.embed_source = embed_source
        self.embed_target = embed_target
        self.encoder = nn.ModuleList(encoder)
        self.encoder_norm = nn.Identity() if encoder_norm is None else encoder_norm
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = nn.Identity() if decoder_norm is None else decoder_norm
        self.to_logits = to_logits
        self.encoder_positions = encoder_positions
        self.decoder_positions = decoder_positions

    def forward(
        self,
        source: Int[Tensor, "batch k_len"],
        target: Int[Tensor, "batch q_len"],
        *,
        source_padding: Int[Tensor, " batch"] | None = None,
        source_mask: Bool[Tensor, "#batch #heads 1 #k_len"] | None = None,
        padding: Int[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "#batch #heads #q_len #q_len"] | None = None,
    ) -> Float[Tensor, "batch q_len vocab_size"]:
        """Score the token after each token of a target that is given (teacher forcing).

        Args:
            source: Ids of the source.
            target: Ids of the target, from the start token on.
            source_padding: How many tokens of padding stand in front of each source. Nobody sees
                them, and positions count from behind them.
            source_mask: ``True`` at the tokens of the source that may be seen, by the encoder and
                by the decoder: ``padding_mask(lengths, k_len)`` where padding stands behind.
            padding: As ``source_padding``, for the target.
            mask: Hides more of the target than the future and that padding.

        Returns:
            Logits, in nats. Those of padding mean nothing.

        Raises:
            TypeError: If a padding is not a tensor of whole numbers, or a mask is not boolean.
            ValueError: If a shape does not fit, a padding is negative, or a sequence is empty or
                longer than the positions reach.
        """
        seen = self._seen(source, source_padding, source_mask)
        memory = self._read(source, source_padding, seen)
        return self.decode(target, memory, memory_mask=seen, padding=padding, mask=mask)

    def encode(
        self,
        source: Int[Tensor, "batch k_len"],
        *,
        padding: Int[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "#batch #heads #k_len #k_len"] | None = None,
    ) -> Float[Tensor, "batch k_len d_model"]:
        """Read a source: the first half of :meth:`forward`.

        Args:
            source: Ids of the source.
            padding: As ``source_padding`` of :meth:`forward`.
            mask: ``True`` where a token of the source may attend to another one.

        Returns:
            The memory: one vector for each token. Those of padding mean nothing.

        Raises:
            TypeError: As :meth:`forward`.
            ValueError: As :meth:`forward`.
        """
        check_ids("source", source)
        mask = encoder_mask(source, self.n_heads, padding=padding, mask=mask)
        return self._read(source, padding, mask)

    def decode(
        self,
        target: Int[Tensor, "batch q_len"],
        memory: Float[Tensor, "batch k_len d_model"] | None = None,
        *,
        memory_mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        padding: Int[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "#batch #heads #q_len #total_len"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch q_len vocab_size"]:
        """Score what comes next, given the source: the second half of :meth:`forward`.

        Args:
            target: Ids of the target; with a cache, only those that are new.
            memory: What :meth:`encode` gives. Leave it out with a cache, which holds the source.
            memory_mask: ``True`` at the tokens of the source that may be seen; without a cache.
            padding: How many tokens of padding stand in front of each target, the same numbers in
                every call with one cache.
            mask: Hides more of the target than the future and that padding. With a cache its keys
                are all tokens so far.
            cache: From :meth:`start`, for use under ``torch.no_grad()``; the keys and values of
                ``target`` are added to it.

        Returns:
            Logits, in nats. Those of padding mean nothing.

        Raises:
            TypeError: As :meth:`forward`.
            ValueError: As :meth:`forward`; if the source comes twice, or not at all; or if the
                cache is full or has another number of layers.
        """
        check_ids("target", target)
        caches = cache_of_each(self.decoder, cache)
        offset = 0 if cache is None else cache.length
        mask = decoder_mask(target, self.n_heads, offset=offset, padding=padding, mask=mask)
        memories, memory_mask = self._source_for_each_layer(memory, memory_mask, cache)
        x = self.embed_target(target, offset=offset if padding is None else offset - padding)
        bias = _shared_bias(self.decoder_positions, x, offset + target.shape[1])
        options = {"mask": mask, "memory_mask": memory_mask, **bias}
        for layer, its_memory, its_cache in zip(self.decoder, memories, caches, strict=True):
            x = layer(x, its_memory, cache=its_cache, **options)
        return self.to_logits(self.decoder_norm(x))  # (B, Lq, V)

    @torch.no_grad()
    def start(
        self,
        source: Int[Tensor, "batch k_len"],
        *,
        max_len: int,
        padding: Int[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "#batch #heads 1 #k_len"] | None = None,
    ) -> KVCache:
        """Read a source, and keep what every layer of the decoder will ask of it.

        Args:
            source: Ids of the source.
            max_len: How many tokens of the target there is room for.
            padding: As ``source_padding`` of :meth:`forward`.
            mask: As ``source_mask`` of :meth:`forward`.

        Returns:
            A cache to decode with: ``greedy(model.decode, ids, cache=model.start(source, …), …)``.

        Raises:
            TypeError: As :meth:`forward`, or if ``max_len`` is not a whole number.
            ValueError: As :meth:`forward`, or if ``max_len`` is not positive.
        """
        seen = self._seen(source, padding, mask)
        memory = self._read(source, padding, seen)
        pairs = [layer.cross_attention.keys_and_values(memory) for layer in self.decoder]
        return KVCache(len(self.decoder), max_len, memory=pairs, memory_mask=seen)

    def _seen(
        self, source: Tensor, padding: Tensor | None, mask: Tensor | None
    ) -> Bool[Tensor, "#batch #heads 1 #k_len"] | None:
        """Which tokens of the source may be seen, by the source itself and by the target."""
        check_ids("source", source)
        mask = encoder_mask(source, self.n_heads, padding=padding, mask=mask)
        if mask is not None and mask.shape[2] != 1:
            raise ValueError(
                "the mask of the source must say the same to all who look, (batch, heads, 1, "
                f"k_len), got {tuple(mask.shape)}; for more, call encode() and decode() yourself"
            )
        return mask

    def _read(
        self, source: Tensor, padding: Tensor | None, mask: Tensor | None
    ) -> Float[Tensor, "batch k_len d_model"]:
        x = self.embed_source(source, offset=0 if padding is None else -padding)
        options = {"mask": mask, **_shared_bias(self.encoder_positions, x, source.shape[1])}
        for layer in self.encoder:
            x = layer(x, **options)
        return self.encoder_norm(x)

    def _source_for_each_layer(
        self, memory: Tensor | None, memory_mask: Tensor | None, cache: KVCache | None
    ) -> tuple[list[Tensor] | list[KeysAndValues], Tensor | None]:
        if cache is None and memory is None:
            raise ValueError(
                "decode() needs a source: a memory from encode() or a cache from start()"
            )
        if cache is None:
            return [memory] * len(self.decoder), memory_mask
        if memory is not None or memory_mask is not None:
            raise ValueError("a cache holds the source already: leave memory and memory_mask out")
        if len(cache.memory) != len(self.decoder):
            raise ValueError("the cache holds no source; make it with start(source, max_len=…)")
        return cache.memory, cache.memory_mask


def _shared_bias(positions: T5Bias | None, x: Tensor, k_len: int) -> dict[str, Tensor]:
    """What every layer of a stack adds to its scores, computed once; nothing without a table."""
    return {} if positions is None else {"bias": positions.between(x.shape[1], k_len).to(x.dtype)}


def shift_right(
    labels: Int[Tensor, "batch length"], *, start_id: int, pad_id: int, ignore_id: int = -100
) -> Int[Tensor, "batch length"]:
    """Make what the decoder is shown from what it should say: a start token, all but the last.

    Args:
        labels: The right tokens.
        start_id: The token that starts every text.
        pad_id: What stands in for labels that do not count.
        ignore_id: How those are marked.

    Example:
        >>> shift_right(torch.tensor([[7, 8, 2], [9, 2, -100]]), start_id=2, pad_id=1)
        tensor([[2, 7, 8],
                [2, 9, 2]])

    Source:
        Checked against ``shift_tokens_right`` of Hugging Face's BART.
    """
    start = labels.new_full((len(labels), 1), start_id)
    shown = torch.cat([start, labels[:, :-1]], dim=1)
    return shown.masked_fill(shown == ignore_id, pad_id)
