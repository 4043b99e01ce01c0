"""Write text with a model: the likeliest token each time, a draw, or the best of several beams.

A *model* is anything that can be called with token ids, (batch, length), and returns logits,
(batch, length, vocab_size): those after each token. It is called in one of two ways.

- ``model(ids)``, with all the ids so far, each time one more. This needs nothing else of a model,
  and computes every token anew at each step.
- ``model(ids, cache=cache)``, if you pass a :class:`~attnlib.cache.KVCache`: first with the whole
  prompt, then with the last token alone. The text is the same; a token costs far less.

Prompts of unequal length go into one batch with padding in front, and ``padding`` says how much.
It is handed on to the model, as ``padding=padding``; :class:`~attnlib.models.gpt.GPT` takes it.

A model with an encoder is called in the same way. It reads the source first, and puts the source's
keys and values into the cache. What is called then is its decoder, and the prompt is the token that
starts a text: ``greedy(model.decode, start, cache=model.start(source, …), …)``.

Switch dropout off before you generate: ``model.eval()``.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlib.cache import KVCache
from attnlib.checks import check_floats, check_sizes, check_whole_numbers

Model = Callable[..., Float[Tensor, "batch length vocab_size"]]


@torch.no_grad()
def greedy(
    model: Model,
    ids: Int[Tensor, "batch length"],
    *,
    max_new_tokens: int,
    eos_id: int | None = None,
    pad_id: int = 0,
    padding: Int[Tensor, " batch"] | None = None,
    cache: KVCache | None = None,
) -> Int[Tensor, "batch new"]:
    """Continue each text with the likeliest token, again and again.

    Args:
        model: What gives the logits.
        ids: The prompts; with a cache that is not empty, what comes after the text in it.
        max_new_tokens: Most tokens to write, the end token included.
        eos_id: The token that ends a text; None if nothing does.
        pad_id: What fills the row of a text that has ended.
        padding: How many tokens of padding stand in front of each prompt.
        cache: Where keys and values are kept. In the end it holds all but the last new token: that
            one goes first in ``ids`` if you write on.

    Returns:
        The new tokens, in as many columns as the longest text needs.

    Raises:
        TypeError: If ``ids`` is not a tensor of whole numbers, or ``max_new_tokens`` is not one.
        ValueError: If ``ids`` is not 2-D or empty, ``max_new_tokens`` is not positive, or the cache
            has no room for that many.

    Example:
        >>> def count(ids):  # a model that knows one thing: after i comes i + 1, and 0 after 8
        ...     return torch.nn.functional.one_hot((ids + 1) % 9, num_classes=9).float()
        >>> greedy(count, torch.tensor([[1, 2], [6, 7]]), max_new_tokens=3, eos_id=8)
        tensor([[3, 4, 5],
                [8, 0, 0]])
    """
    text = _Text(model, ids, max_new_tokens, padding, cache)
    return _write(text, lambda logits: logits.argmax(-1), max_new_tokens, eos_id, pad_id)


@torch.no_grad()
def sample(
    model: Model,
    ids: Int[Tensor, "batch length"],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
    pad_id: int = 0,
    padding: Int[Tensor, " batch"] | None = None,
    cache: KVCache | None = None,
) -> Int[Tensor, "batch new"]:
    """Continue each text with tokens that are drawn from the model's probabilities.

    Args:
        model: As for :func:`greedy`.
        ids: As for :func:`greedy`.
        max_new_tokens: As for :func:`greedy`.
        temperature: As for :func:`token_probabilities`.
        top_k: As for :func:`token_probabilities`.
        top_p: As for :func:`token_probabilities`.
        generator: Source of randomness; with the same seed, the same batch gets the same texts.
        eos_id: As for :func:`greedy`.
        pad_id: As for :func:`greedy`.
        padding: As for :func:`greedy`.
        cache: As for :func:`greedy`.

    Returns:
        The new tokens, in as many columns as the longest text needs.

    Raises:
        TypeError: As :func:`greedy` and :func:`token_probabilities`.
        ValueError: As :func:`greedy` and :func:`token_probabilities`.

    Example:
        >>> def even(ids):  # a model that knows nothing: all tokens are as likely
        ...     return torch.zeros(*ids.shape, 5)
        >>> dice = torch.Generator().manual_seed(0)
        >>> sample(even, torch.tensor([[1]]), max_new_tokens=4, generator=dice).shape
        torch.Size([1, 4])
    """

    def draw(logits: Tensor) -> Tensor:
        p = token_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
        return p.multinomial(1, generator=generator)[:, 0]

    text = _Text(model, ids, max_new_tokens, padding, cache)
    return _write(text, draw, max_new_tokens, eos_id, pad_id)


def token_probabilities(
    logits: Float[Tensor, "*batch vocab_size"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "*batch vocab_size"]:
    r"""The probabilities that :func:`sample` draws from.

    .. math:: p_v \propto e^{logit_v / temperature}

    for the tokens that are kept, and 0 for the others.

    Args:
        logits: A score for each token, in nats.
        temperature: Above 1, rare tokens get likelier; below 1, the likely ones.
        top_k: Keep this many of the likeliest tokens, and those that tie with the last of them.
        top_p: Of what is left, keep the fewest tokens, likeliest first, that have this much of the
            probability together. Of tokens that tie, those with the smaller ids.

    Returns:
        Probabilities. Each row sums to 1.

    Raises:
        TypeError: If ``logits`` is not a float tensor, or ``top_k`` not a whole number.
        ValueError: If the temperature or ``top_k`` is not positive, or ``top_p`` is not in 0 to 1.

    Example:
        >>> logits = torch.tensor([0.5, 0.25, 0.25, 0.125]).log()
        >>> token_probabilities(logits, top_k=3)
        tensor([0.5000, 0.2500, 0.2500, 0.0000])
        >>> token_probabilities(logits, top_p=0.5)
        tensor([0.6667, 0.3333, 0.0000, 0.0000])

    Source:
        Top-k: Fan et al. 2018, arXiv:1805.04833, section 5.4. Top-p: Holtzman et al. 2020,
        arXiv:1904.09751, section 3.1. Checked against Hugging Face's ``TopKLogitsWarper`` and
        ``TopPLogitsWarper``.
    """
    check_floats("logits", logits)
    _check_choice(temperature, top_k, top_p)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scores = (logits - logits.amax(-1, keepdim=True)) / temperature  # 0 at most: can't overflow
    if top_k is not None and top_k < scores.shape[-1]:
        worst = scores.topk(top_k).values[..., -1:]
        scores = scores.masked_fill(scores < worst, -torch.inf)
    probabilities = scores.softmax(-1)
    if top_p is None or top_p == 1:
        return probabilities
    ordered, order = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    likelier = ordered.cumsum(-1) - ordered  # what the tokens before have together
    kept = ordered.masked_fill(likelier >= top_p, 0.0)
    kept = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(kept).scatter(-1, order, kept)


@torch.no_grad()
def beam_search(
    model: Model,
    ids: Int[Tensor, "batch length"],
    *,
    max_new_tokens: int,
    n_beams: int = 4,
    alpha: float = 0.6,
    eos_id: int | None = None,
    pad_id: int = 0,
    padding: Int[Tensor, " batch"] | None = None,
    cache: KVCache | None = None,
) -> Int[Tensor, "batch new"]:
    r"""Continue each text in several ways at once, and keep the one with the best score.

    .. math:: \mathrm{score}(Y) = \log P(Y) \,\big/ \left(\frac{5 + |Y|}{5 + 1}\right)^{\alpha}

    At each step the continuations of all beams compete, and the ``n_beams`` likeliest stay. One
    that ends leaves the race with its score, and the next likeliest takes its place. The search is
    over when nothing that goes on could still win. A text that is cut off at ``max_new_tokens``
    counts like one that has ended.

    Args:
        model: As for :func:`greedy`.
        ids: As for :func:`greedy`.
        max_new_tokens: As for :func:`greedy`.
        n_beams: How many texts are kept at each step.
        alpha: How much longer texts are favoured; 0 for none, so that the likeliest text wins.
        eos_id: As for :func:`greedy`.
        pad_id: As for :func:`greedy`.
        padding: As for :func:`greedy`.
        cache: As for :func:`greedy`. It ends up with ``n_beams`` rows for each text.

    Returns:
        The new tokens of the best text, in as many columns as the longest one needs. Their number,
        with the end token, is the length of Y.

    Raises:
        TypeError: As :func:`greedy`, or if ``n_beams`` is not a whole number.
        ValueError: As :func:`greedy`, or if ``n_beams`` is not positive or ``alpha`` is negative.

    Example:
        >>> p = torch.tensor([[0.0, 0.6, 0.4], [0.4, 0.3, 0.3], [0.0, 0.0, 1.0]])  # after token i
        >>> greedy(lambda ids: p[ids].log(), torch.tensor([[0]]), max_new_tokens=2)  # 0.6 * 0.4
        tensor([[1, 0]])
        >>> beam_search(lambda ids: p[ids].log(), torch.tensor([[0]]), max_new_tokens=2)  # 0.4 * 1
        tensor([[2, 2]])

    Source:
        Wu et al. 2016 (GNMT), arXiv:1609.08144, equation 14, without the coverage penalty; 4 beams
        and 0.6 as in Vaswani et al. 2017, section 6.1. Checked against all texts of a small
        vocabulary, and against Hugging Face's ``generate`` without a length penalty.
    """
    check_sizes(n_beams=n_beams)
    if alpha < 0:
        raise ValueError(f"alpha must be 0 or more, got {alpha}")
    text = _Text(model, ids, max_new_tokens, padding, cache)
    rows = torch.arange(len(ids), device=ids.device)
    logits = text.logits().repeat_interleave(n_beams, dim=0)  # (B * n_beams, V)
    text.reorder(rows.repeat_interleave(n_beams))
    written = ids.new_empty(len(ids), n_beams, 0)
    log_p = logits.new_full((len(ids), n_beams), -torch.inf, dtype=torch.float64)
    log_p[:, 0] = 0.0  # the beams of a text start alike, so only one of them may grow
    best = _Best(ids, max_new_tokens, alpha, pad_id)
    for length in range(1, max_new_tokens + 1):
        grown, log_p, beam = _likeliest_continuations(written, log_p, logits)
        ended = grown[..., -1] == (-1 if eos_id is None else eos_id)  # no token has the id -1
        is_over = ended | (length == max_new_tokens)
        best.consider(grown[:, :n_beams], log_p[:, :n_beams], is_over[:, :n_beams])
        log_p, kept = log_p.masked_fill(ended, -torch.inf).topk(n_beams)
        if length == max_new_tokens or best.beats_whatever_becomes_of(log_p):
            break
        written = _take(grown, kept)
        text.reorder((rows[:, None] * n_beams + beam.gather(1, kept)).flatten())
        text.append(written[..., -1].flatten())
        logits = text.logits()
    return best.ids[:, : best.lengths.max()]


class _Text:
    """Texts that grow, and a model that reads them: all anew, or the last token with a cache."""

    def __init__(
        self,
        model: Model,
        ids: Tensor,
        max_new_tokens: int,
        padding: Tensor | None,
        cache: KVCache | None,
    ) -> None:
        check_whole_numbers("ids", ids, "write torch.tensor([[5, 6]]), one row for each text")
        if ids.ndim != 2 or 0 in ids.shape:
            raise ValueError(
                f"ids must be (batch, length) with one token or more, got shape {tuple(ids.shape)}"
            )
        check_sizes(max_new_tokens=max_new_tokens)
        if cache is not None:
            needed = cache.length + ids.shape[1] + max_new_tokens - 1  # the last is never read
            if needed > cache.max_len:
                raise ValueError(
                    f"the cache has room for {cache.max_len} tokens, but {needed} will be needed; "
                    "make it with a larger max_len, or lower max_new_tokens"
                )
        self.model = model
        self.unread = ids  # without a cache, nothing counts as read
        options = {"padding": padding, "cache": cache}
        self.options = {name: option for name, option in options.items() if option is not None}

    def logits(self) -> Float[Tensor, "batch vocab_size"]:
        """Read on, and score what may come next."""
        return self.model(self.unread, **self.options)[:, -1]

    def append(self, token: Int[Tensor, " batch"]) -> None:
        token = token[:, None]
        is_cached = "cache" in self.options
        self.unread = token if is_cached else torch.cat([self.unread, token], dim=1)

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Let row ``i`` go on from where row ``rows[i]`` is."""
        self.unread = self.unread[rows]
        if "padding" in self.options:
            self.options["padding"] = self.options["padding"][rows]
        if "cache" in self.options:
            self.options["cache"].reorder(rows)


def _write(
    text: _Text,
    choose: Callable[[Tensor], Tensor],
    max_new_tokens: int,
    eos_id: int | None,
    pad_id: int,
) -> Int[Tensor, "batch new"]:
    """Let ``choose`` pick a token from the logits, until all texts have ended."""
    written = []
    ended = torch.zeros(len(text.unread), dtype=torch.bool, device=text.unread.device)
    while True:
        token = choose(text.logits())  # (B,)
        written.append(token if eos_id is None else token.masked_fill(ended, pad_id))
        if eos_id is not None:
            ended = ended | (token == eos_id)
        if len(written) == max_new_tokens or (eos_id is not None and ended.all()):
            return torch.stack(written, dim=1)
        text.append(token)  # a text that has ended goes on unseen


class _Best:
    """For each row the best text so far among those that are over."""

    def __init__(self, prompts: Tensor, max_new_tokens: int, alpha: float, pad_id: int) -> None:
        batch, self.max_len, self.alpha = len(prompts), max_new_tokens, alpha
        self.ids = prompts.new_full((batch, max_new_tokens), pad_id)
        self.lengths = prompts.new_zeros(batch)
        self.scores = torch.full((batch,), -torch.inf, dtype=torch.float64, device=prompts.device)

    def consider(
        self,
        texts: Int[Tensor, "batch n_beams length"],
        log_p: Float[Tensor, "batch n_beams"],
        is_over: Bool[Tensor, "batch n_beams"],
    ) -> None:
        length = texts.shape[-1]
        scores, which = self._score(log_p, length).masked_fill(~is_over, -torch.inf).max(dim=1)
        better = scores > self.scores
        self.scores = torch.where(better, scores, self.scores)
        self.lengths = torch.where(better, length, self.lengths)
        # Later texts are longer, so they cover all of the one they replace.
        self.ids[better, :length] = _take(texts, which[:, None])[better, 0]

    def beats_whatever_becomes_of(self, log_p: Float[Tensor, "batch n_beams"]) -> bool:
        """Whether no text that goes on can win: log P only falls, and the longest is favoured."""
        most = self._score(log_p, self.max_len).amax(dim=1)
        return bool((self.scores >= most).all())

    def _score(self, log_p: Tensor, length: int) -> Tensor:
        return log_p / ((5 + length) / (5 + 1)) ** self.alpha


def _likeliest_continuations(
    written: Int[Tensor, "batch n_beams length"],
    log_p: Float[Tensor, "batch n_beams"],
    logits: Float[Tensor, "rows vocab_size"],
) -> tuple[Int[Tensor, "batch n longer"], Float[Tensor, "batch n"], Int[Tensor, "batch n"]]:
    """Each beam with each token: the best of all, their log P, and the beams they come from.

    Twice as many as there are beams: each beam may end in one way, so that as many go on.
    """
    batch, n_beams = log_p.shape
    vocab_size = logits.shape[-1]
    of_token = logits.double().log_softmax(-1).unflatten(0, (batch, n_beams))
    of_text = (log_p[..., None] + of_token).flatten(1)  # (B, n_beams * V)
    log_p, index = of_text.topk(min(2 * n_beams, of_text.shape[1]))
    beam, token = index // vocab_size, index % vocab_size
    return torch.cat([_take(written, beam), token[..., None]], dim=-1), log_p, beam


def _take(
    texts: Int[Tensor, "batch n length"], which: Int[Tensor, "batch m"]
) -> Int[Tensor, "batch m length"]:
    return texts.gather(1, which[..., None].expand(-1, -1, texts.shape[-1]))


def _check_choice(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not temperature > 0:
        raise ValueError(
            f"temperature must be above 0, got {temperature}; towards 0 it becomes greedy()"
        )
    if top_k is not None:  # None is for all
        check_sizes(top_k=top_k)
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie above 0 and up to 1, or be None for all, got {top_p}")
