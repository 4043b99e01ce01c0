"""Inputs made anew: of any size, with random content, masks and documents that fit."""

import functools

import torch
from torch import Tensor, nn

from attnlib.doctor.roles import Inputs, Sizes
from attnlib.doctor.running import Running
from attnlib.doctor.stillness import modules_behind

HIDE_NAMES = ("key_padding_mask", "pad", "hide", "hidden", "ignore")


class Making(Running):
    """Makes inputs of the kind that was given, for a callable that can be run."""

    def generator(self, salt: int = 0) -> torch.Generator:
        """A source of random numbers of its own."""
        return torch.Generator().manual_seed(1000 * self.seed + salt)

    def random_like(self, value: Tensor, shape: tuple[int, ...], salt: int) -> Tensor:
        """New content: unit normal numbers, or tokens from the range of the example."""
        source = self.generator(salt)
        if value.is_floating_point():
            return torch.randn(shape, generator=source, dtype=torch.float32).to(value.dtype)
        low, high = int(value.min()), int(value.max()) + 1
        rows = self.vocabulary(value)
        if rows:
            low, high = 1 if rows > 8 else 0, rows
        drawn = torch.randint(low, max(high, low + 2), shape, generator=source)
        pad = self.pad_of(value)
        return drawn if pad is None else torch.where(drawn == pad, (pad + 1) % high, drawn)

    def pad_of(self, value: Tensor) -> int | None:
        """The token that is padding in one of the given sequences."""
        if self.promises.memory_pad_id is not None and "memory" in vars(self).get("roles", {}):
            if any(self.given[p] is value for p in self.roles["memory"]):
                return self.promises.memory_pad_id
        return self.promises.pad_id

    def vocabulary(self, value: Tensor) -> int | None:
        """How many tokens there are, from the embedding that a given sequence goes through."""
        place = next((p for p, v in self.given.items() if v is value), None)
        if place in self.looked_up:
            return self.looked_up[place]
        rows = self._embeddings()
        return rows[0].num_embeddings if rows else None

    @functools.cached_property
    def looked_up(self) -> dict[int | str, int]:
        """Which arguments go straight into an embedding, and how many rows it has."""
        module, found = self.fresh(), {}
        ids = {p: v for p, v in self.given.items() if isinstance(v, Tensor) and v.ndim == 2}

        def heard(layer: nn.Module, args: tuple) -> None:
            for place, value in ids.items():
                same = args[0].shape == value.shape and torch.equal(args[0], value)
                if value.dtype == torch.long and args and same:
                    found.setdefault(place, layer.num_embeddings)

        inside = [m for top in modules_behind(module) for m in top.modules()]
        hooks = [m.register_forward_pre_hook(heard) for m in inside if isinstance(m, nn.Embedding)]
        try:
            self.call(self.given, module=module)
        except Exception:
            found.clear()  # it is told of elsewhere
        for hook in hooks:
            hook.remove()
        return found

    def _embeddings(self) -> list[nn.Embedding]:
        modules = [m for top in modules_behind(self.called) for m in top.modules()]
        found = [m for m in modules if isinstance(m, nn.Embedding)]
        named = [
            m
            for top in modules_behind(self.called)
            for n, m in top.named_modules()
            if isinstance(m, nn.Embedding)
            and any(w in n.lower() for w in ("tok", "word", "emb", "wte"))
            and not any(w in n.lower() for w in ("pos", "type", "wpe"))
        ]
        return named or found

    def make(
        self,
        sizes: Sizes | None = None,
        lengths: list[int] | None = None,
        memory_lengths: list[int] | None = None,
        left: bool | None = None,
        scale: float = 1.0,
        salt: int = 0,
    ) -> Inputs:
        """New inputs of any size, with random content.

        ``lengths`` says how many tokens of each sample are real; all are if it is left out.
        ``left`` puts the padding on the left; if it is left out, where the example has it.
        """
        sizes = sizes or self.sizes
        inputs: Inputs = dict(self.given)
        for role, length in (("main", sizes.length), ("memory", sizes.memory)):
            for number, place in enumerate(self.roles.get(role, ())):
                value = self.given[place]
                fresh = self.random_like(
                    value,
                    self._shape(value, sizes.batch, length),
                    salt + (0 if role == "main" else 50 + number),
                )
                inputs[place] = fresh * scale if fresh.is_floating_point() else fresh
        for place in self.roles.get("main", ())[1:]:
            inputs[place] = inputs[self.roles["main"][0]]
        keep = self.keep(sizes.batch, sizes.length, lengths, left)
        memory_keep = self.keep(sizes.batch, sizes.memory, memory_lengths, bool(left))
        self._set_masks(inputs, keep, memory_keep)
        for place in self.roles.get("each", ()):
            shape = (sizes.batch, self.given[place].shape[1])
            inputs[place] = self.random_like(self.given[place], shape, salt + 70)
        for place in self.roles.get("documents", ()):
            half = (torch.arange(sizes.length) >= sizes.length // 2).long()
            inputs[place] = half.expand(sizes.batch, -1).clone().to(self.given[place].dtype)
        for place in self.roles.get("labels", ()):
            value = self.given[place]
            shape = (
                (sizes.batch, *value.shape[1:-1], sizes.length) if value.ndim > 1 else value.shape
            )
            inputs[place] = self.random_like(value.clamp(min=0), shape, salt + 90)
        return self._resize_others(inputs, sizes)

    def _shape(self, value: Tensor, batch: int, length: int) -> tuple[int, ...]:
        shape = list(value.shape)
        shape[self._axis(value)] = length
        if self._axis(value) > 0:
            shape[0] = batch
        return tuple(shape)

    def keep(
        self, batch: int, length: int, lengths: list[int] | None, left: bool | None = None
    ) -> Tensor:
        """A mask that is True at real tokens."""
        left = self.pads_left if left is None else left
        if lengths is None:
            return torch.ones(batch, length, dtype=torch.bool)
        count = torch.tensor([lengths[i % len(lengths)] for i in range(batch)])[:, None]
        place = torch.arange(length)
        return place >= length - count if left else place < count

    def _set_masks(self, inputs: Inputs, keep: Tensor, memory_keep: Tensor) -> None:
        for role, real in (("padding", keep), ("memory_padding", memory_keep)):
            for place in self.roles.get(role, ()):
                inputs[place] = self.as_given(real, self.given[place])
        pads = {"main": (self.promises.pad_id, keep)}
        pads["memory"] = (self.promises.memory_pad_id, memory_keep)
        for role, (pad, real) in pads.items():
            for place in self.roles.get(role, ())[:1] if pad is not None else ():
                if not inputs[place].is_floating_point():
                    inputs[place] = torch.where(real, inputs[place], pad)

    def as_given(self, keep: Tensor, example: Tensor) -> Tensor:
        """A padding mask in the form that the module takes."""
        means = self.means
        if means == "lengths" or example.ndim == 1:
            return keep.sum(-1).to(example.dtype)
        if means == "add":
            low = float(example.min()) if bool((example < 0).any()) else float("-inf")
            form = torch.zeros(keep.shape, dtype=example.dtype).masked_fill(~keep, low)
        else:
            form = (keep if means == "keep" else ~keep).to(example.dtype)
        while form.ndim < example.ndim:
            form = form[:, None]
        return form

    @functools.cached_property
    def pads_left(self) -> bool:
        """Whether padding stands on the left alone: by promise, or in the example."""
        if self.promises.left_padding == "only":
            return True
        real = self._shown_real()
        if real is None or real.ndim != 2:
            return False
        padded = real[~real.all(1)]
        return len(padded) > 0 and not bool(padded[:, 0].any()) and bool(real[:, -1].all())

    def _shown_real(self) -> Tensor | None:
        """The real tokens of the example, as its mask or its padding tokens say."""
        place, main = self.roles.get("padding", [None])[0], self.main
        if place is not None:
            value, means = self.given[place], self.means
            if value.ndim < 2 or value.shape[0] * self.given_sizes.length != value.numel():
                return None
            return value.flatten(1).bool() if means == "keep" else value.flatten(1) == 0
        if self.promises.pad_id is None or main is None or main.is_floating_point():
            return None
        return main != self.promises.pad_id

    @property
    def means(self) -> str:
        """What the padding mask says."""
        if self.promises.padding_means is not None:
            return self.promises.padding_means
        place = self.roles.get("padding", self.roles.get("memory_padding", [None]))[0]
        if place is None:
            return "keep"
        value, name = self.given[place], self.name_of(place).lower()
        if value.ndim == 1:
            return "lengths"
        if value.is_floating_point() and bool((value < 0).any()):
            return "add"
        shown = _shown_meaning(value.flip(-1) if self.promises.left_padding == "only" else value)
        if shown is not None:
            return shown
        return "hide" if any(w in name for w in HIDE_NAMES) else "keep"

    def _resize_others(self, inputs: Inputs, sizes: Sizes) -> Inputs:
        """Cut other tensors, such as a mask of pairs, to the new sizes where that is clear."""
        used = {p for places in self.roles.values() for p in places}
        for place, value in self.given.items():
            if place in used or not isinstance(value, Tensor) or value.ndim < 2:
                continue
            old = self.given_sizes
            if value.shape[-2:] == (old.length, old.length) and sizes.length != old.length:
                inputs[place] = _regrown(value, sizes.length)
            elif value.ndim > 2 and value.shape[0] == old.batch and value.dtype == torch.bool:
                inputs[place] = _regrown_mask(value, old, sizes)
            elif value.ndim == 2 and value.shape == (old.batch, old.length):
                row = value[:1] if sizes.length == old.length else value[:1, :1]
                inputs[place] = row.expand(sizes.batch, sizes.length).clone()
                if torch.equal(value, torch.arange(old.length).expand_as(value)):
                    inputs[place] = torch.arange(sizes.length).expand(sizes.batch, -1).clone()
        return inputs


def _shown_meaning(mask: Tensor) -> str | None:
    """What the example of a mask says about True: a side where all are the same is real."""
    if mask.ndim != 2 or not bool(((mask == 0) | (mask == 1)).all()):
        return None
    for side, other in ((0, -1), (-1, 0)):
        real = mask[0, side]
        if bool((mask[:, side] == real).all()) and bool((mask[:, other] != real).any()):
            return "keep" if bool(real) else "hide"
    return None


def _regrown_mask(mask: Tensor, old: Sizes, new: Sizes) -> Tensor:
    """A mask with a batch axis, such as (batch, 1, keys), in another size: its first sample's."""
    mask = mask[:1].expand(new.batch, *mask.shape[1:])
    for axis in range(1, mask.ndim):
        for before, after in ((old.memory, new.memory), (old.length, new.length)):
            if mask.shape[axis] == before != after:
                mask = mask.narrow(axis, 0, 1)
                mask = mask.expand(*[after if i == axis else -1 for i in range(mask.ndim)])
                break
    return mask.clone()


def _regrown(mask: Tensor, length: int) -> Tensor:
    """A triangle, or a mask that is the same everywhere, in another size."""
    corner = mask[..., :1, -1:]
    low = mask[..., -1:, :1]
    shape = (*mask.shape[:-2], length, length)
    upper = torch.ones(length, length, dtype=torch.bool).triu(1)
    return torch.where(upper, corner.expand(shape), low.expand(shape))
