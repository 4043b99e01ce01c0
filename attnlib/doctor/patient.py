"""A module on the examination table: its inputs in sizes that work, and its first output."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnlib.doctor.making import Making
from attnlib.doctor.promises import Promises
from attnlib.doctor.roles import Inputs, Sizes
from attnlib.doctor.trace import Hearing

PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


class Patient(Making):
    """A callable with its example inputs and its promises.

    The callable itself is never run where a copy can be: each run takes a copy. ``roles`` says
    which argument is what.
    """

    def __init__(
        self, called: Callable, args: tuple, kwargs: dict[str, Any], promises: Promises, seed: int
    ) -> None:
        super().__init__(called, {**dict(enumerate(args)), **kwargs}, promises, seed)
        self.inferred: list[str] = []
        self.refused: dict[Sizes, str] = {}

    def with_main(self, inputs: Inputs, value: Tensor, role: str = "main") -> Inputs:
        """The same inputs with another sequence.

        Where several arguments play the role, keys and values say, the others change where it does.
        """
        first, *others = self.roles[role]
        new = {**inputs, first: value}
        rows = _rows_changed(inputs[first], value, self._axis(value))
        for number, place in enumerate(others):
            old = inputs[place]
            if old is inputs[first]:
                new[place] = value
            elif rows.numel() == old.shape[self._axis(old)]:
                shape = [1] * old.ndim
                shape[self._axis(old)] = -1
                other = self.random_like(self.given[place], tuple(old.shape), 95 + number)
                new[place] = torch.where(rows.view(shape), other, old)
        return new

    def main_in(self, inputs: Inputs, role: str = "main") -> Tensor:
        """The sequence in some inputs."""
        return inputs[self.roles[role][0]]

    def without(self, inputs: Inputs, role: str) -> Inputs | None:
        """The same inputs without an argument, or None if it cannot be left out."""
        places = self.roles.get(role, [])
        if not places:
            return None
        rest = {p: v for p, v in inputs.items() if p not in places}
        numbers = [p for p in rest if isinstance(p, int)]
        if any(isinstance(p, int) and n > p for p in places for n in numbers):
            for p in places:
                rest[p] = None
        return rest

    # ------------------------------------------------------------------ what most probes start from

    @functools.cached_property
    def base(self) -> Inputs:
        """Inputs of the chosen sizes, without padding."""
        return self.make()

    def copies(self, number: int) -> Inputs:
        """Inputs whose samples are all alike, so that each can be changed in another place."""
        inputs = self.make(self.resized(batch=number))
        for role in ("main", "memory", "each"):
            for place in self.roles.get(role, ()):
                inputs[place] = inputs[place][:1].expand_as(inputs[place]).clone()
        for place in self.roles.get("main", ())[1:]:
            inputs[place] = inputs[self.roles["main"][0]]
        return inputs

    @functools.cached_property
    def y(self) -> Tensor:
        """The output for ``base``."""
        return self.out(self.base)

    @functools.cached_property
    def heard(self) -> Hearing:
        """The operations of a pass over ``base``."""
        return self.hear(self.base)[1]

    @functools.cached_property
    def floor(self) -> float:
        """How far outputs move from rounding alone: the smallest change that means something."""
        size = float(self.y.abs().max()) if self.y.numel() else 0.0
        again = self.out(self.base)
        gap = float((again - self.y).abs().max()) if again.shape == self.y.shape else 0.0
        if self.main is not None and self.main.is_floating_point():
            value = self.main_in(self.base)
            eps = 4 * torch.finfo(value.dtype).eps
            nudged = self.out(self.with_main(self.base, value * (1 + eps)))
            gap = max(gap, float((nudged - self.y).abs().max()))
        return max(1e-6 * size, 10 * gap, 1e-9)

    def out_axis(self, y: Tensor, length: int | None = None) -> int | None:
        """The axis of an output that runs along the tokens of the main input, if there is one."""
        length = self.sizes.length if length is None else length
        if self.main is None or y.ndim < 2:
            return None
        axis = self.axis if self.main.is_floating_point() and y.ndim == self.main.ndim else 1
        if not self.batched:
            axis = 0
        aligned = y.ndim > axis and y.shape[axis] == length
        return axis if aligned and (y.ndim > 2 or not self.batched) else None

    # ------------------------------------------------------------------ finding sizes that work

    def choose_sizes(self) -> None:
        """Take sizes that are different primes, where the module runs with them."""
        if self.main is None:
            return
        given, p = self.given_sizes, self.promises
        taken = {p.n_heads, p.kv_heads}
        batch = next(n for n in (3, 5, 2) if n not in taken) if self.batched else 1
        wanted = max(2 * (p.window or 0) + 3, (p.prefix or 0) + 4, 7)
        length = next(n for n in PRIMES if n >= wanted and n not in taken and n != batch)
        memory = length
        if "memory" in self.roles and not (self.is_qkv and p.causal):
            low = wanted if p.window else 5
            memory = next(n for n in (5, *PRIMES) if n >= low and n not in {length, batch, *taken})
        tries = [Sizes(batch, length, memory), Sizes(batch, length, length)]
        for n in (2 * given.length, given.length):
            m = given.memory if n == given.length else n
            tries += [Sizes(batch, n, m), Sizes(given.batch, n, m)]
        for sizes in dict.fromkeys([*tries, given]):
            try:
                self.call(self.make(sizes), module=self.fresh())
            except Exception as error:
                self.refused[sizes] = f"{type(error).__name__}: {error}"
                continue
            self.sizes = sizes
            return

    def resized(self, **changes: int) -> Sizes:
        """The sizes in use with some of them changed."""
        return replace(self.sizes, **changes)


def _rows_changed(old: Tensor, new: Tensor, axis: int) -> Tensor:
    """For each position along an axis, whether anything there is new."""
    if old.shape != new.shape:
        return torch.zeros(0, dtype=torch.bool)
    return (old != new).movedim(axis, 0).flatten(1).any(1)
