"""Exercises of the chapter on the five models."""

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlib.exercises.exercise import Case, Exercise, Suspect
from attnlib.functional import attention
from attnlib.masks import causal_mask, prefix_mask
from attnlib.models.encoder_decoder import shift_right
from attnlib.models.vit import split_patches

_Words = list[str]
_Spans = list[tuple[int, int]]

# ---------------------------------------------------------------------------- read_and_write


class _Layer(nn.Module):
    """A small layer, with weights large enough for every influence to be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.randn(3, 4, 4, dtype=torch.float64))

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        return x + attention(*(x @ weight for weight in self.weights), mask=mask)[0]


def _stack(n_layers: int) -> list[nn.Module]:
    return [_Layer() for _ in range(n_layers)]


def _stack_cases() -> Iterator[Case]:
    def of(n_layers: int, batch: int, length: int, n_source: int) -> tuple:
        x = torch.randn(batch, length, 4, dtype=torch.float64)
        return _stack(n_layers), x, n_source

    yield Case("2 layers, 3 tokens of source and 3 of target", of(2, 1, 6, 3), "plain")
    yield Case("2 sequences, 2 tokens of source and 5 of target", of(2, 2, 7, 2), "other-lengths")
    yield Case("3 layers, 4 tokens of source and one of target", of(3, 1, 5, 4), "three-layers")
    yield Case("one layer, one token of source", of(1, 1, 4, 1), "one-layer")


def _through(layers: Sequence[nn.Module], x: Tensor, mask: Tensor | None) -> Tensor:
    for layer in layers:
        x = layer(x, mask=mask)
    return x


def _prefix(x: Tensor, n_source: int) -> Tensor:
    length = x.shape[1]
    return prefix_mask(torch.tensor([min(max(n_source, 0), length)]), length)


def _from_source(x: Tensor, n_source: int) -> Tensor:
    """Who is source, as keys."""
    return (torch.arange(x.shape[1]) < n_source).view(1, 1, 1, -1)


def _two_blocks(x: Tensor, n_source: int) -> Tensor:
    """Sources see sources, and targets see targets before them."""
    is_source = _from_source(x, n_source)
    return _prefix(x, n_source) & (is_source == is_source.mT)


def _two_full(x: Tensor, n_source: int) -> Tensor:
    is_source = _from_source(x, n_source)
    return is_source | ~is_source.mT


def _restarted(layers: Sequence[nn.Module], x: Tensor, n_source: int) -> Tensor:
    return layers[-1](x, mask=_prefix(x, n_source))


def _mask_once(layers: Sequence[nn.Module], x: Tensor, n_source: int) -> Tensor:
    return _through(layers[1:], layers[0](x, mask=_prefix(x, n_source)), None)


def _depends(solution: Callable) -> str:
    """Which inputs reach the first and the fourth of six outputs, three of them source."""
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    layers, reach = _stack(2), {}
    before = solution(layers, x.clone(), 3)
    for j in range(6):
        changed = x.clone()
        changed[0, j] += torch.randn(4).double()
        reach[j] = (solution(layers, changed, 3) - before)[0].abs().amax(-1) > 1e-9
    of = {i: [j for j in range(6) if reach[j][i]] for i in (0, 4)}
    return (
        f"with tokens 0 to 2 as source, output 0 depends on tokens {of[0]} and output 4 on {of[4]}"
    )


_READ_AND_WRITE = Exercise(
    name="read_and_write",
    chapter="variants",
    task="One stack of layers, called as layer(x, mask=...), with the sight of an encoder-decoder.",
    takes=("layers", "x", "n_source"),
    difficulty="easy",
    minutes=10,
    hints=(
        "Say it in words first: who may a token of the source see, and who a token of the target? "
        "The source must not see the target, in no layer.",
        "It is the mask of a prefix, and every layer needs it. Look at which outputs move when "
        "one token changes.",
    ),
    reference=lambda layers, x, n: _through(layers, x, _prefix(x, n)),
    cases=_stack_cases,
    suspects=(
        Suspect("all-causal", "the source is causal, too, as in a GPT: {}",
                lambda ls, x, n: _through(ls, x, causal_mask(x.shape[1])), _depends),
        Suspect("no-mask", "all see all, as in a BERT: {}",
                lambda ls, x, n: _through(ls, x, None), _depends),
        Suspect("target-sees-its-future", "the target sees its own future: {}",
                lambda ls, x, n: _through(ls, x, _two_full(x, n)), _depends),
        Suspect("source-sees-target", "the source sees the target: whole rows were opened in "
                "place of whole columns: {}",
                lambda ls, x, n: _through(ls, x, causal_mask(x.shape[1]) | _from_source(x, n).mT),
                _depends),
        Suspect("target-blind-to-source", "the target does not see the source: {}",
                lambda ls, x, n: _through(ls, x, _two_blocks(x, n)), _depends),
        Suspect("target-blind-to-itself", "the target sees the source only, nothing that it wrote "
                "before: {}",
                lambda ls, x, n: _through(ls, x, _from_source(x, n).expand(1, 1, x.shape[1], -1)),
                _depends),
        Suspect("inverted", "true marks what is blocked; the layers want it where a token may "
                "look: {}", lambda ls, x, n: _through(ls, x, ~_prefix(x, n)), _depends),
        Suspect("one-too-many", "the first token of the target counts as source: {}",
                lambda ls, x, n: _through(ls, x, _prefix(x, n + 1)), _depends),
        Suspect("one-too-few", "the last token of the source counts as target: {}",
                lambda ls, x, n: _through(ls, x, _prefix(x, n - 1)), _depends),
        Suspect("first-layer-only", "only the first layer gets the mask: {}", _mask_once, _depends),
        Suspect("loses-the-layers", "each layer starts from the same x again: only the last one "
                "counts", _restarted),
        Suspect("first-layer-alone", "only the first layer is run",
                lambda ls, x, n: ls[0](x, mask=_prefix(x, n))),
        Suspect("fixed-source", "the source is taken to be 3 tokens long, whatever n_source is",
                lambda ls, x, n: _through(ls, x, _prefix(x, 3))),
    ),
)  # fmt: skip

# --------------------------------------------------------------------------- cut and restore

_SENTENCE = "the quick brown fox jumps over the lazy dog today".split()


def _cut_cases() -> Iterator[Case]:
    yield Case("spans (1, 3) and (6, 8) of ten words", (_SENTENCE, [(1, 3), (6, 8)]), "plain")
    yield Case("a span at the start and one at the end", (_SENTENCE[:5], [(0, 2), (4, 5)]), "edges")
    yield Case("one span of three words", (_SENTENCE[:6], [(2, 5)]), "one-span")
    yield Case("spans that touch", (_SENTENCE[:6], [(1, 2), (2, 4)]), "touching")
    yield Case("no span at all", (_SENTENCE[:3], []), "no-span")
    many = [(i, i + 1) for i in range(1, 24, 2)]
    yield Case("twelve spans", ([f"w{i}" for i in range(25)], many), "twelve-spans")


def _cut(words: _Words, spans: _Spans, *, mark: str = "<{}>", first: int = 0, end: int = 0,
         closing: bool = True, tail: bool = True) -> tuple[_Words, _Words]:  # fmt: skip
    shown, said, last = [], [], 0
    for number, (a, b) in enumerate(spans, first):
        shown += [*words[last:a], mark.format(number)]
        said += [mark.format(number), *words[a : b + end]]
        last = b + end
    shown += words[last:] if tail else []
    return shown, said + [mark.format(first + len(spans))] * closing


def _mark_behind(words: _Words, spans: _Spans) -> tuple[_Words, _Words]:
    said = [w for i, (a, b) in enumerate(spans) for w in (*words[a:b], f"<{i}>")]
    return _cut(words, spans)[0], [*said, f"<{len(spans)}>"]


def _mark_each(words: _Words, spans: _Spans) -> tuple[_Words, _Words]:
    return _cut(words, [(i, i + 1) for a, b in spans for i in range(a, b)])


def _unmarked(words: _Words, spans: _Spans) -> tuple[_Words, _Words]:
    shown, said = _cut(words, spans)
    return [word for word in shown if not word.startswith("<")], said


def _shrinking(words: _Words, spans: _Spans) -> tuple[_Words, _Words]:
    words, said = list(words), []
    for i, (a, b) in enumerate(spans):
        said += [f"<{i}>", *words[a:b]]
        words[a:b] = [f"<{i}>"]
    return words, [*said, f"<{len(spans)}>"]


def _cut_seen(solution: Callable) -> str:
    shown, said = solution("a b c d e".split(), [(1, 3), (4, 5)])
    return f"a b c d e with (1, 3) and (4, 5) is shown as '{_text(shown)}' and said '{_text(said)}'"


def _text(words: object) -> str:
    return words if isinstance(words, str) else " ".join(map(str, words))


_CUT = Exercise(
    name="cut",
    chapter="variants",
    task="What T5 is shown and what it should say, as two lists, with marks <0>, <1> and so on.",
    takes=("words", "spans"),
    difficulty="medium",
    minutes=10,
    hints=(
        "Go through the spans in order, and keep what lies between the end of the last one and "
        "the start of the next.",
        "What is left after the last span? And how does the model know that it has said all?",
    ),
    reference=_cut,
    cases=_cut_cases,
    suspects=(
        Suspect("no-closing-mark", "the mark that ends what is said is missing: {}",
                lambda w, s: _cut(w, s, closing=False), _cut_seen),
        Suspect("one-mark", "all places have the same mark, as in BART; T5 numbers them: {}",
                lambda w, s: _cut(w, s, mark="<0>"), _cut_seen),
        Suspect("counts-from-one", "the marks start at <1>, and should at <0>: {}",
                lambda w, s: _cut(w, s, first=1), _cut_seen),
        Suspect("end-included", "the word at the end of a span is cut as well: {}",
                lambda w, s: _cut(w, s, end=1), _cut_seen),
        Suspect("no-tail", "the words after the last span are lost: {}",
                lambda w, s: _cut(w, s, tail=False), _cut_seen),
        Suspect("mark-behind", "in what is said, a mark stands behind its words, and should stand "
                "before them: {}", _mark_behind, _cut_seen),
        Suspect("mark-per-word", "each word that was cut has a mark; each *span* should: {}",
                _mark_each, _cut_seen),
        Suspect("start-and-length", "a span is (start, end), and is read as (start, length): {}",
                lambda w, s: _cut(w, [(a, a + n) for a, n in s]), _cut_seen),
        Suspect("no-marks-shown", "no mark shows where something was cut: {}", _unmarked,
                _cut_seen),
        Suspect("says-all", "the whole sentence is said, as in BART; T5 says what is missing: {}",
                lambda w, s: (_cut(w, s)[0], list(w)), _cut_seen),
        Suspect("places-move", "each cut moves all later words, and the next span is then looked "
                "for in the wrong place: {}", _shrinking, _cut_seen),
        Suspect("exchanged", "what is said comes first, and what is shown should: {}",
                lambda w, s: _cut(w, s)[::-1], _cut_seen),
        Suspect("text", "this is text; two lists of words were asked for",
                lambda w, s: tuple(map(" ".join, _cut(w, s)))),
    ),
)  # fmt: skip


def _restore_cases() -> Iterator[Case]:
    for case in _cut_cases():
        yield Case(case.words, _cut(*case.arguments), case.key)


def _stretches(said: _Words) -> dict[str, _Words]:
    found: dict[str, _Words] = {}
    mark = ""
    for word in said:
        mark = word if word.startswith("<") else mark
        found.setdefault(mark, [])
        found[mark] += [word] * (word != mark)
    return found


def _fill(shown: _Words, said: _Words, change: Callable = lambda found, mark: found) -> _Words:
    """Put the stretches in, each changed in some way."""
    found = _stretches(said)
    return [w for s in shown for w in (change(found[s], s) if s in found else [s])]


def _kept(words: _Words) -> _Words:
    return [word for word in words if not word.startswith("<")]


def _one_digit(shown: _Words, said: _Words) -> _Words:
    found: dict[str, _Words] = {}
    for mark, words in _stretches(said).items():
        found.setdefault(mark[1], []).extend(words)
    return [w for s in shown for w in (found[s[1]] if s.startswith("<") else [s])]


def _without_tail(shown: _Words, said: _Words) -> _Words:
    last = max((i + 1 for i, word in enumerate(shown) if word.startswith("<")), default=0)
    return _fill(shown[:last], said)


def _nested(shown: _Words, said: _Words) -> list:
    found = _stretches(said)
    return [found.get(word, word) for word in shown]


def _restore_seen(solution: Callable) -> str:
    got = solution("a <0> d <1>".split(), "<0> b c <1> e <2>".split())
    return f"'a <0> d <1>' with '<0> b c <1> e <2>' becomes '{_text(got)}'"


_RESTORE = Exercise(
    name="restore",
    chapter="variants",
    task="The sentence as a list of words, from what T5 was shown and what it said.",
    takes=("shown", "said"),
    difficulty="medium",
    minutes=10,
    hints=(
        "First take what was said apart: which words belong to which mark?",
        "A stretch can have any number of words, and there can be more than ten of them.",
    ),
    reference=_fill,
    cases=_restore_cases,
    suspects=(
        Suspect("keeps-marks", "the marks are still in there: {}",
                lambda shown, said: _fill(shown, said, lambda f, m: [m, *f]), _restore_seen),
        Suspect("one-word", "of each stretch only the first word comes back: {}",
                lambda shown, said: _fill(shown, said, lambda f, m: f[:1]), _restore_seen),
        Suspect("last-word", "of each stretch only the last word comes back: {}",
                lambda shown, said: _fill(shown, said, lambda f, m: f[-1:]), _restore_seen),
        Suspect("one-digit", "of a mark's number only the first digit is read: <1> and <10> are "
                "one to you", _one_digit),
        Suspect("nested", "a stretch comes back as a list within the list: {}", _nested,
                _restore_seen),
        Suspect("keeps-closing-mark", "the mark that ends what was said is put in, too: {}",
                lambda shown, said: [*_fill(shown, said), said[-1]], _restore_seen),
        Suspect("appends", "what was said comes behind all the rest, not in its places: {}",
                lambda shown, said: _kept(shown) + _kept(said), _restore_seen),
        Suspect("drops-stretches", "the marks are gone, and nothing is in their places: {}",
                lambda shown, said: _kept(shown), _restore_seen),
        Suspect("no-tail", "the words after the last mark are lost", _without_tail),
        Suspect("reversed", "the words of a stretch come back in the wrong order: {}",
                lambda shown, said: _fill(shown, said, lambda f, m: f[::-1]), _restore_seen),
        Suspect("text", "this is text; a list of words was asked for",
                lambda shown, said: " ".join(_fill(shown, said))),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------------- shift


def _shift_cases() -> Iterator[Case]:
    row = torch.tensor([[7, 8, 9, 2], [5, 6, 4, 2]])
    yield Case("two texts of 4, start 2, padding 1", (row, 2, 1), "plain")
    ignored = torch.tensor([[7, 8, 2, -100, -100], [9, 5, 6, 4, 2]])
    yield Case("labels with -100 behind a text", (ignored, 2, 1), "ignored")
    yield Case("start and padding both 0, as in T5", (ignored, 0, 0), "t5")
    yield Case("one label", (torch.tensor([[7]]), 3, 1), "one-label")
    hole = torch.tensor([[7, -100, 0, -100, 2, 4]])
    yield Case("-100 in the middle, and a label 0 that counts", (hole, 3, 1), "holes")


def _shift(labels: Tensor, start_id: int, pad_id: int) -> Tensor:
    return shift_right(labels, start_id=start_id, pad_id=pad_id)


def _clean(labels: Tensor, pad_id: int) -> Tensor:
    return torch.where(labels == -100, pad_id, labels)


def _start_written_over(labels: Tensor, start_id: int, pad_id: int) -> Tensor:
    return torch.cat([labels[:, :1] * 0 + start_id, _clean(labels, pad_id)[:, 1:]], 1)


def _shift_batch(labels: Tensor, start_id: int, pad_id: int) -> Tensor:
    return _clean(F.pad(labels, (0, 0, 1, -1), value=start_id), pad_id)


def _shift_seen(solution: Callable) -> str:
    got = solution(torch.tensor([[7, 8, 9, -100]]), 2, 1)
    return f"labels [7, 8, 9, -100] with start 2 and padding 1 become {got[0].tolist()}"


_SHIFT = Exercise(
    name="shift",
    chapter="variants",
    task="What a decoder is shown, from labels (batch, length) in which -100 does not count.",
    takes=("labels", "start_id", "pad_id"),
    difficulty="easy",
    minutes=8,
    hints=(
        "At place i the model must say label i. Which label may it be shown there at most?",
        "-100 is a message to the loss; no embedding has such a row. What should stand there?",
    ),
    reference=_shift,
    cases=_shift_cases,
    suspects=(
        Suspect("not-shifted", "nothing is shifted: each place is shown what it should say: {}",
                lambda y, s, p: _clean(y, p), _shift_seen),
        Suspect("left", "this shifts to the left: each place is shown the answer of the next: {}",
                lambda y, s, p: _clean(F.pad(y, (-1, 1), value=p), p), _shift_seen),
        Suspect("rolled", "the last label comes round to the front, where the start belongs: {}",
                lambda y, s, p: _clean(y.roll(1, 1), p), _shift_seen),
        Suspect("start-overwrites", "the start is written over the first label, and nothing is "
                "shifted: {}", _start_written_over, _shift_seen),
        Suspect("keeps-ignored", "-100 is still in there, and no embedding has such a row: {}",
                lambda y, s, p: F.pad(y, (1, -1), value=s), _shift_seen),
        Suspect("longer", "it got longer by one: the last label is of no use as an input: {}",
                lambda y, s, p: _clean(F.pad(y, (1, 0), value=s), p), _shift_seen),
        Suspect("start-for-ignored", "the start stands where padding should: {}",
                lambda y, s, p: _shift(y, s, s), _shift_seen),
        Suspect("start-is-pad", "it starts with the padding token, as T5 does; start_id is not "
                "used: {}", lambda y, s, p: _shift(y, p, p), _shift_seen),
        Suspect("start-is-0", "it always starts with 0; start_id is not used: {}",
                lambda y, s, p: _shift(y, 0, p), _shift_seen),
        Suspect("twice", "it is shifted twice: the model learns the token after the next: {}",
                lambda y, s, p: _shift(_shift(y, s, p), s, p), _shift_seen),
        Suspect("batch-axis", "it shifts from text to text, along the batch: {}", _shift_batch,
                _shift_seen),
        Suspect("wrong-dtype", "ids are whole numbers, and these are floats",
                lambda y, s, p: _shift(y, s, p).float()),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------- cut_patches


def _patch_cases() -> Iterator[Case]:
    yield Case("2 images of 3 channels, 4 by 6, in patches of 2", (torch.randn(2, 3, 4, 6), 2))
    yield Case("6 by 4 pixels", (torch.randn(1, 2, 6, 4), 2), "upright")
    yield Case("one channel, patches of 3", (torch.randn(2, 1, 6, 6), 3), "one-channel")
    yield Case("one patch", (torch.randn(2, 3, 2, 2), 2), "one-patch")
    yield Case("patches of one pixel", (torch.randn(1, 3, 2, 3), 1), "one-pixel")


def _patched(images: Tensor, size: int, order: str) -> Tensor:
    """Patches with their axes in any order: the grid R C, the pixels r c, and the channels x."""
    cut = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return torch.einsum(f"bxRrCc->b{order}", cut)


def _ordered(images: Tensor, size: int, order: str) -> Tensor:
    return _patched(images, size, order).flatten(3).flatten(1, 2)


def _axes_mixed(images: Tensor, size: int) -> Tensor:
    cut = images.unflatten(3, (size, -1)).unflatten(2, (size, -1))
    return torch.einsum("bxrRcC->bRCxrc", cut).flatten(3).flatten(1, 2)


def _numbered(solution: Callable) -> str:
    got = solution(torch.arange(8.0).view(1, 1, 2, 4), 2)
    return (
        f"of the rows [0, 1, 2, 3] and [4, 5, 6, 7], the first patch of 2 by 2 is "
        f"{got[0, 0].flatten().int().tolist()}"
    )


_CUT_PATCHES = Exercise(
    name="cut_patches",
    chapter="variants",
    task="Images (batch, channels, height, width) as patches (batch, patches, numbers): row by "
    "row, and channel by channel inside.",
    takes=("images", "size"),
    difficulty="medium",
    minutes=10,
    hints=(
        "Draw an image of 2 rows and 4 columns, numbered 0 to 7. Which numbers belong to the first "
        "patch of 2 by 2? They do not lie side by side in memory.",
        "Cut both height and width into (how many, size). That makes six axes: bring them into "
        "the right order before any two are joined.",
    ),
    reference=split_patches,
    cases=_patch_cases,
    suspects=(
        Suspect("reshaped", "a reshape alone takes numbers as they lie in memory, whole rows of "
                "pixels: {}", lambda x, n: x.reshape(len(x), -1, x.shape[1] * n * n), _numbered),
        Suspect("columns-first", "the patches go down the columns; they should go row by row",
                lambda x, n: _ordered(x, n, "CRxrc")),
        Suspect("channels-last", "inside a patch, the channels of a pixel lie side by side; they "
                "should come one channel after the other", lambda x, n: _ordered(x, n, "RCrcx")),
        Suspect("transposed-inside", "inside a patch the pixels go down its columns: {}",
                lambda x, n: _ordered(x, n, "RCxcr"), _numbered),
        Suspect("axes-mixed", "height and width were cut into (size, how many), not (how many, "
                "size): pixels far apart meet in a patch: {}", _axes_mixed, _numbered),
        Suspect("features-first", "the last two axes are exchanged: patches should be rows",
                lambda x, n: split_patches(x, n).mT),
        Suspect("overlap", "the patches overlap: the next one should start where one ends",
                lambda x, n: F.unfold(x, n).mT),
        Suspect("first-channel", "only the first channel is used",
                lambda x, n: split_patches(x[:, :1], n)),
        Suspect("channel-tokens", "each channel has patches of its own; a patch holds them all",
                lambda x, n: _patched(x, n, "xRCrc").flatten(4).flatten(1, 3)),
        Suspect("not-flat", "the numbers of a patch are not in one flat row",
                lambda x, n: _patched(x, n, "RCxrc").flatten(1, 2)),
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (_READ_AND_WRITE, _CUT, _RESTORE, _SHIFT, _CUT_PATCHES)
