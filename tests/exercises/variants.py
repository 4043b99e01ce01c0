"""Solutions of the exercises on the five models, as readers write them."""

import torch
import torch.nn.functional as F

from attnlib.masks import causal_mask, prefix_mask
from attnlib.models import encoder_decoder, vit
from exercises import Solutions

solutions = Solutions()
RIGHT, WRONG = solutions.right, solutions.wrong
right, wrong = solutions.is_right, solutions.is_wrong


# ------------------------------------------------------ read_and_write(layers, x, n_source)


def through(layers, x, mask):
    for layer in layers:
        x = layer(x, mask=mask)
    return x


def square(x, allowed):
    """A mask from a rule: ``allowed(query, key)``."""
    at = torch.arange(x.shape[1])
    return allowed(at[:, None], at[None]).expand(1, 1, len(at), len(at))


@right("read_and_write")
def stack_with_prefix_mask(layers, x, n_source):
    return through(layers, x, prefix_mask(torch.tensor([n_source]), x.shape[1]))


@right("read_and_write")
def stack_with_or(layers, x, n_source):
    mask = causal_mask(x.shape[1])
    mask[..., :n_source] = True
    return through(layers, x, mask)


@right("read_and_write")
def stack_by_loop(layers, x, n_source):
    length = x.shape[1]
    mask = torch.zeros(1, 1, length, length, dtype=torch.bool)
    for i in range(length):
        mask[0, 0, i, : max(i + 1, n_source)] = True
    for layer in layers:
        x = layer(x, mask=mask)
    return x


@right("read_and_write")
def stack_in_two_steps(layers, x, n_source):
    source, target = x[:, :n_source], x[:, n_source:]
    for layer in layers:
        together = torch.cat([source, target], dim=1)
        mask = causal_mask(together.shape[1])[:, :, n_source:]
        mask = torch.cat([mask.new_zeros(1, 1, n_source, mask.shape[-1]), mask], dim=2)
        mask[:, :, :n_source, :n_source] = True
        source, target = layer(together, mask=mask).split([n_source, target.shape[1]], dim=1)
    return torch.cat([source, target], dim=1)


@wrong("read_and_write", "all-causal")
def stack_is_a_gpt(layers, x, n_source):
    return through(layers, x, causal_mask(x.shape[1]))


@wrong("read_and_write", "no-mask")
def stack_is_a_bert(layers, x, n_source):
    return through(layers, x, None)


@wrong("read_and_write", "target-sees-its-future")
def stack_hides_target_from_source_only(layers, x, n_source):
    mask = square(x, lambda q, k: (q >= n_source) | (k < n_source))
    return through(layers, x, mask)


@wrong("read_and_write", "source-sees-target")
def stack_opens_rows(layers, x, n_source):
    mask = causal_mask(x.shape[1])
    mask[:, :, :n_source] = True
    return through(layers, x, mask)


@wrong("read_and_write", "target-blind-to-source")
def stack_of_two_blocks(layers, x, n_source):
    mask = causal_mask(x.shape[1])
    mask[:, :, :n_source, :n_source] = True
    mask[:, :, n_source:, :n_source] = False
    return through(layers, x, mask)


@wrong("read_and_write", "target-blind-to-itself")
def stack_writes_from_source_only(layers, x, n_source):
    return through(layers, x, square(x, lambda q, k: k < n_source))


@wrong("read_and_write", "inverted")
def stack_with_blocked(layers, x, n_source):
    return through(layers, x, ~prefix_mask(torch.tensor([n_source]), x.shape[1]))


@wrong("read_and_write", "one-too-many")
def stack_counts_one_more(layers, x, n_source):
    return through(layers, x, square(x, lambda q, k: (k <= q) | (k <= n_source)))


@wrong("read_and_write", "one-too-few")
def stack_counts_one_less(layers, x, n_source):
    return through(layers, x, square(x, lambda q, k: (k <= q) | (k < n_source - 1)))


@wrong("read_and_write", "first-layer-only")
def stack_masks_once(layers, x, n_source):
    x = layers[0](x, mask=prefix_mask(torch.tensor([n_source]), x.shape[1]))
    return through(layers[1:], x, None)


@wrong("read_and_write", "loses-the-layers")
def stack_restarts(layers, x, n_source):
    mask = prefix_mask(torch.tensor([n_source]), x.shape[1])
    for layer in layers:
        y = layer(x, mask=mask)
    return y


@wrong("read_and_write", "fixed-source")
def stack_of_three(layers, x, n_source):
    return through(layers, x, prefix_mask(torch.tensor([3]), x.shape[1]))


# --------------------------------------------------------------------- cut(words, spans)


@right("cut")
def cut_by_slices(words, spans):
    shown, said, last = [], [], 0
    for number, (start, end) in enumerate(spans):
        shown += [*words[last:start], f"<{number}>"]
        said += [f"<{number}>", *words[start:end]]
        last = end
    return shown + words[last:], [*said, f"<{len(spans)}>"]


@right("cut")
def cut_word_by_word(words, spans):
    of = {i: n for n, (start, end) in enumerate(spans) for i in range(start, end)}
    shown, said = [], []
    for i, word in enumerate(words):
        if i not in of:
            shown.append(word)
            continue
        if i == spans[of[i]][0]:
            shown.append(f"<{of[i]}>")
            said.append(f"<{of[i]}>")
        said.append(word)
    said.append(f"<{len(spans)}>")
    return shown, said


@right("cut")
def cut_from_the_end(words, spans):
    shown, said = list(words), [f"<{len(spans)}>"]
    for number in reversed(range(len(spans))):
        start, end = spans[number]
        said = [f"<{number}>", *shown[start:end], *said]
        shown[start:end] = [f"<{number}>"]
    return shown, said


@right("cut")
def cut_by_bounds(words, spans):
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(words)]
    shown = []
    for number, (kept_from, kept_to) in enumerate(zip(ends, starts, strict=True)):
        shown += [*words[kept_from:kept_to], f"<{number}>"]
    said = []
    for number, (start, end) in enumerate(spans):
        said += [f"<{number}>", *words[start:end]]
    return shown[:-1], [*said, shown[-1]]


def cut_with(words, spans, mark="<{}>".format, closing=True, first=0, tail=True, extra=0, early=0):
    """A cut with one thing changed, to build wrong ones from."""
    shown, said, last = [], [], 0
    for number, (start, end) in enumerate(spans, first):
        start, end = start - early, end + extra
        shown += [*words[last:start], mark(number)]
        said += [mark(number), *words[start:end]]
        last = end
    shown += words[last:] if tail else []
    return shown, said + ([mark(len(spans) + first)] if closing else [])


@wrong("cut", "no-closing-mark")
def cut_without_last_mark(words, spans):
    return cut_with(words, spans, closing=False)


@wrong("cut", "one-mark")
def cut_as_bart_does(words, spans):
    return cut_with(words, spans, mark=lambda number: "<0>")


@wrong("cut", "counts-from-one")
def cut_numbers_from_one(words, spans):
    return cut_with(words, spans, first=1)


@wrong("cut", "end-included")
def cut_takes_the_end_too(words, spans):
    return cut_with(words, spans, extra=1)


@wrong("cut", "no-tail")
def cut_forgets_the_tail(words, spans):
    return cut_with(words, spans, tail=False)


@wrong("cut", "mark-behind")
def cut_marks_behind(words, spans):
    shown, said = cut_by_slices(words, spans)
    said = [w for n, (a, b) in enumerate(spans) for w in [*words[a:b], f"<{n}>"]]
    return shown, [*said, f"<{len(spans)}>"]


@wrong("cut", "mark-per-word")
def cut_marks_each_word(words, spans):
    inside = [i for start, end in spans for i in range(start, end)]
    return cut_by_slices(words, [(i, i + 1) for i in inside])


@wrong("cut", "start-and-length")
def cut_reads_length(words, spans):
    return cut_by_slices(words, [(start, start + n) for start, n in spans])


@wrong("cut", "no-marks-shown")
def cut_shows_no_marks(words, spans):
    shown, said = cut_by_slices(words, spans)
    return [word for word in shown if not word.startswith("<")], said


@wrong("cut", "says-all")
def cut_says_the_sentence(words, spans):
    return cut_by_slices(words, spans)[0], list(words)


@wrong("cut", "places-move")
def cut_in_a_shrinking_list(words, spans):
    shown, said = list(words), []
    for number, (start, end) in enumerate(spans):
        said += [f"<{number}>", *shown[start:end]]
        shown[start:end] = [f"<{number}>"]
    return shown, [*said, f"<{len(spans)}>"]


@wrong("cut", "changes-inputs")
def cut_in_the_callers_list(words, spans):
    said = [f"<{len(spans)}>"]
    for number in reversed(range(len(spans))):
        start, end = spans[number]
        said = [f"<{number}>", *words[start:end], *said]
        words[start:end] = [f"<{number}>"]
    return words, said


@wrong("cut", "changes-inputs")
def cut_crosses_out_what_it_took(words, spans):
    shown, said, last = [], [], 0
    for number, (start, end) in enumerate(spans):
        shown += [*words[last:start], f"<{number}>"]
        said += [f"<{number}>", *words[start:end]]
        words[start:end] = ["-"] * (end - start)
        last = end
    return shown + words[last:], [*said, f"<{len(spans)}>"]


@wrong("cut", "text")
def cut_joins(words, spans):
    return tuple(" ".join(part) for part in cut_by_slices(words, spans))


# ------------------------------------------------------------------ restore(shown, said)


@right("restore")
def restore_by_stretches(shown, said):
    stretches, mark = {}, None
    for word in said:
        mark = word if word.startswith("<") else mark
        stretches.setdefault(mark, []).extend([word] if word != mark else [])
    return [w for s in shown for w in stretches.get(s, [s])]


@right("restore")
def restore_by_index(shown, said):
    words, number = [], 0
    for word in shown:
        if word == f"<{number}>":
            start = said.index(word) + 1
            number += 1
            words += said[start : said.index(f"<{number}>")]
        else:
            words.append(word)
    return words


@right("restore")
def restore_by_text(shown, said):
    text, rest = "\n".join(["", *shown, ""]), "\n".join(["", *said, ""])
    n_marks = len([word for word in said if word.startswith("<")])
    for n in range(n_marks - 1):
        stretch = rest.split(f"\n<{n}>\n")[1].split(f"\n<{n + 1}>\n")[0]
        text = text.replace(f"\n<{n}>\n", f"\n{stretch}\n")
    return text.strip("\n").split("\n")


@right("restore")
def restore_by_iterator(shown, said):
    coming, words = iter(said), []
    next(coming)
    for word in shown:
        if not word.startswith("<"):
            words.append(word)
            continue
        for missing in coming:
            if missing.startswith("<"):
                break
            words.append(missing)
    return words


def stretches_of(said):
    found, mark = {}, None
    for word in said:
        if word.startswith("<"):
            mark = word
            found[mark] = []
        else:
            found[mark].append(word)
    return found


@wrong("restore", "keeps-marks")
def restore_behind_the_marks(shown, said):
    found = stretches_of(said)
    return [w for s in shown for w in [s, *found.get(s, [])]]


@wrong("restore", "one-word")
def restore_one_word_each(shown, said):
    found = stretches_of(said)
    return [found[s][0] if s in found else s for s in shown]


@wrong("restore", "last-word")
def restore_keeps_the_last_word(shown, said):
    found, mark = {}, None
    for word in said:
        if word.startswith("<"):
            mark = word
        else:
            found[mark] = word
    return [found.get(s, s) for s in shown]


@wrong("restore", "one-digit")
def restore_reads_one_digit(shown, said):
    found, number = {}, None
    for word in said:
        if word.startswith("<"):
            number = word[1]
            found.setdefault(number, [])
        else:
            found[number].append(word)
    return [w for s in shown for w in (found[s[1]] if s.startswith("<") else [s])]


@wrong("restore", "nested")
def restore_forgets_to_unpack(shown, said):
    found = stretches_of(said)
    return [found.get(s, s) for s in shown]


@wrong("restore", "keeps-closing-mark")
def restore_adds_closing_mark(shown, said):
    return [*restore_by_stretches(shown, said), said[-1]]


@wrong("restore", "appends")
def restore_puts_all_behind(shown, said):
    kept = [word for word in shown if not word.startswith("<")]
    return kept + [word for word in said if not word.startswith("<")]


@wrong("restore", "drops-stretches")
def restore_only_cleans(shown, said):
    return [word for word in shown if not word.startswith("<")]


@wrong("restore", "no-tail")
def restore_stops_at_last_mark(shown, said):
    found, words = stretches_of(said), []
    last = max((i for i, s in enumerate(shown) if s in found), default=-1)
    for s in shown[: last + 1]:
        words += found.get(s, [s])
    return words


@wrong("restore", "reversed")
def restore_pops_from_the_end(shown, said):
    found = stretches_of(said)
    return [w for s in shown for w in reversed(found.get(s, [s]))]


@wrong("restore", "changes-inputs")
def restore_consumes(shown, said):
    words = []
    for s in shown:
        if not s.startswith("<"):
            words.append(s)
            continue
        said.pop(0)
        while not said[0].startswith("<"):
            words.append(said.pop(0))
    return words


@wrong("restore", "text")
def restore_to_text(shown, said):
    return " ".join(restore_by_stretches(shown, said))


# ------------------------------------------------------ shift(labels, start_id, pad_id)


@right("shift")
def shift_by_cat(labels, start_id, pad_id):
    start = torch.full_like(labels[:, :1], start_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == -100, pad_id)


@right("shift")
def shift_as_hugging_face(labels, start_id, pad_id):
    shifted = labels.new_zeros(labels.shape)
    shifted[:, 1:] = labels[:, :-1].clone()
    shifted[:, 0] = start_id
    shifted.masked_fill_(shifted == -100, pad_id)
    return shifted


@right("shift")
def shift_by_pad(labels, start_id, pad_id):
    shifted = F.pad(labels, (1, -1), value=start_id)
    return torch.where(shifted < 0, pad_id, shifted)


@right("shift")
def shift_by_loop(labels, start_id, pad_id):
    rows = []
    for row in labels.tolist():
        shown = [start_id, *row][:-1]
        rows.append([pad_id if token == -100 else token for token in shown])
    return torch.tensor(rows, dtype=labels.dtype)


@right("shift")
def shift_by_package(labels, start_id, pad_id):
    return encoder_decoder.shift_right(labels, start_id=start_id, pad_id=pad_id)


@wrong("shift", "not-shifted")
def shift_only_cleans(labels, start_id, pad_id):
    return labels.masked_fill(labels == -100, pad_id)


@wrong("shift", "left")
def shift_left(labels, start_id, pad_id):
    shifted = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], pad_id)], dim=1)
    return shifted.masked_fill(shifted == -100, pad_id)


@wrong("shift", "rolled")
def shift_by_roll(labels, start_id, pad_id):
    shifted = labels.roll(1, dims=1)
    return shifted.masked_fill(shifted == -100, pad_id)


@wrong("shift", "start-overwrites")
def shift_overwrites_first(labels, start_id, pad_id):
    shown = labels.masked_fill(labels == -100, pad_id)
    shown[:, 0] = start_id
    return shown


@wrong("shift", "keeps-ignored")
def shift_keeps_minus_100(labels, start_id, pad_id):
    return torch.cat([torch.full_like(labels[:, :1], start_id), labels[:, :-1]], dim=1)


@wrong("shift", "longer")
def shift_adds_one(labels, start_id, pad_id):
    start = torch.full((len(labels), 1), start_id)
    return torch.cat([start, labels.masked_fill(labels == -100, pad_id)], dim=1)


@wrong("shift", "start-for-ignored")
def shift_fills_start(labels, start_id, pad_id):
    return shift_by_cat(labels, start_id, start_id)


@wrong("shift", "start-is-pad")
def shift_as_t5_does(labels, start_id, pad_id):
    return shift_by_cat(labels, pad_id, pad_id)


@wrong("shift", "start-is-0")
def shift_starts_with_zero(labels, start_id, pad_id):
    return shift_by_cat(labels, 0, pad_id)


@wrong("shift", "twice")
def shift_twice(labels, start_id, pad_id):
    return shift_by_cat(shift_by_cat(labels, start_id, pad_id), start_id, pad_id)


@wrong("shift", "batch-axis")
def shift_rows_of_the_batch(labels, start_id, pad_id):
    shifted = torch.cat([torch.full_like(labels[:1], start_id), labels[:-1]])
    return shifted.masked_fill(shifted == -100, pad_id)


@wrong("shift", "changes-inputs")
def shift_cleans_in_place(labels, start_id, pad_id):
    labels[labels == -100] = pad_id
    return torch.cat([torch.full_like(labels[:, :1], start_id), labels[:, :-1]], dim=1)


@wrong("shift", "fails-at-holes")
def shift_fills_what_is_below_one(labels, start_id, pad_id):
    shifted = F.pad(labels, (1, -1), value=start_id)
    return torch.where(shifted < 1, pad_id, shifted)


@wrong("shift", "wrong-dtype")
def shift_into_floats(labels, start_id, pad_id):
    shifted = torch.full(labels.shape, float(start_id))
    shifted[:, 1:] = labels[:, :-1]
    return shifted.masked_fill(shifted == -100, pad_id)


# ----------------------------------------------------------------------- cut_patches(images, size)


@right("cut_patches")
def patches_by_permute(images, size):
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, height // size, size, width // size, size)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * size * size)


@right("cut_patches")
def patches_by_loop(images, size):
    cut = [
        images[:, :, i : i + size, j : j + size].flatten(1)
        for i in range(0, images.shape[2], size)
        for j in range(0, images.shape[3], size)
    ]
    return torch.stack(cut, dim=1)


@right("cut_patches")
def patches_by_unfold(images, size):
    return F.unfold(images, size, stride=size).transpose(1, 2)


@right("cut_patches")
def patches_by_einsum(images, size):
    x = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return torch.einsum("bchpwq->bhwcpq", x).flatten(3).flatten(1, 2)


@right("cut_patches")
def patches_of_package(images, size):
    return vit.split_patches(images, size)


def cut_up(images, size, order):
    """Grid and patch axes in any order: 0 batch, 1 channel, 2 row, 3 in row, 4 column, 5 in it."""
    x = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return x.permute(order).flatten(3).flatten(1, 2)


@wrong("cut_patches", "reshaped")
def patches_by_reshape(images, size):
    return images.reshape(len(images), -1, images.shape[1] * size * size)


@wrong("cut_patches", "columns-first")
def patches_down_the_columns(images, size):
    return cut_up(images, size, (0, 4, 2, 1, 3, 5))


@wrong("cut_patches", "channels-last")
def patches_channels_last(images, size):
    return cut_up(images, size, (0, 2, 4, 3, 5, 1))


@wrong("cut_patches", "transposed-inside")
def patches_lie_on_their_side(images, size):
    return cut_up(images, size, (0, 2, 4, 1, 5, 3))


@wrong("cut_patches", "axes-mixed")
def patches_mix_grid_and_patch(images, size):
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, size, height // size, size, width // size)
    return x.permute(0, 3, 5, 1, 2, 4).reshape(batch, -1, channels * size * size)


@wrong("cut_patches", "features-first")
def patches_forget_transpose(images, size):
    return F.unfold(images, size, stride=size)


@wrong("cut_patches", "overlap")
def patches_of_every_pixel(images, size):
    return F.unfold(images, size).mT


@wrong("cut_patches", "first-channel")
def patches_of_grey(images, size):
    return patches_by_permute(images[:, :1], size)


@wrong("cut_patches", "channel-tokens")
def patches_per_channel(images, size):
    x = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return x.permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(1, 3)


@wrong("cut_patches", "wrong-shape")
def patches_count_rows_twice(images, size):
    n = images.shape[2] // size
    cut = [
        images[:, :, i * size : (i + 1) * size, j * size : (j + 1) * size].flatten(1)
        for i in range(n)
        for j in range(n)
    ]
    return torch.stack(cut, dim=1)


@wrong("cut_patches", "not-flat")
def patches_keep_their_shape(images, size):
    x = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return x.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
