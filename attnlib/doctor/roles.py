"""Which argument of a module is what: queries, memory, masks, documents, labels."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlib.doctor.promises import Promises

Inputs = dict[int | str, Any]  # by position or by name

MEMORY_NAMES = {"memory", "mem", "src", "source", "context", "ctx", "kv", "key", "k", "encoder"}
MEMORY_NAMES |= {"enc", "enc_out", "encoder_output", "encoder_hidden_states", "encoder_out"}
MEMORY_NAMES |= {"value", "values", "v", "keys", "source_states", "cond", "image"}
DECODER_NAMES = ("decoder", "tgt", "trg", "target")
DOCUMENT_NAMES = ("doc", "seg", "packed", "cu_seq", "sequence_id")


@dataclass(frozen=True)
class Sizes:
    """Numbers of samples, of tokens, and of tokens in the memory."""

    batch: int
    length: int
    memory: int


class Roles:
    """A callable with its example inputs and promises, and what each input is."""

    def __init__(self, called: Callable, given: Inputs, promises: Promises, seed: int) -> None:
        self.called = called
        self.promises = promises
        self.seed = seed
        self.given = _cloned(given)
        self.turned: set[int | str] = set()  # arguments that have the batch second
        self.names = self._parameter_names()
        if not promises.batch_first:
            self._turn_given()
        self.roles = self._find_roles()
        self.sizes = self.given_sizes = self._given_sizes()

    @property
    def is_module(self) -> bool:
        """Whether it is an ``nn.Module``, with parameters and modes."""
        return isinstance(self.called, nn.Module)

    @property
    def name(self) -> str:
        """What the report calls it."""
        return getattr(self.called, "__name__", type(self.called).__name__)

    def _parameter_names(self) -> list[str]:
        target = self.called.forward if self.is_module else self.called
        try:
            return list(inspect.signature(target).parameters)
        except (TypeError, ValueError):
            return []

    def name_of(self, place: int | str) -> str:
        """The name of an argument."""
        if isinstance(place, str):
            return place
        return self.names[place] if place < len(self.names) else f"argument {place}"

    def _turn_given(self) -> None:
        """Put the batch first in what was given sequence first; masks have it first anyway."""
        for place, value in self.given.items():
            if not isinstance(value, Tensor) or self._sounds_like_mask(place):
                continue
            if value.ndim == 3 or (value.ndim == 2 and value.dtype == torch.long):
                self.turned.add(place)
        one = {id(self.given[p]): self.given[p].transpose(0, 1) for p in self.turned}
        self.given |= {p: one[id(self.given[p])] for p in self.turned}

    def _place(self, argument: int | str | None) -> int | str | None:
        """Where an argument was given, if it was."""
        if argument is None or argument in self.given:
            return argument
        if isinstance(argument, str) and argument in self.names:
            position = self.names.index(argument)
            return position if position in self.given else None
        return None

    def _find_roles(self) -> dict[str, list[int | str]]:
        promised = {
            role: self._place(getattr(self.promises, role))
            for role in ("main", "memory", "padding", "memory_padding", "documents", "labels")
        }
        roles = {role: [place] for role, place in promised.items() if place is not None}
        taken = {place for places in roles.values() for place in places}
        rest = {p: v for p, v in self.given.items() if isinstance(v, Tensor) and p not in taken}
        floats = [p for p, v in rest.items() if v.is_floating_point() and v.ndim >= 3]
        if self.promises.padding_means == "add":
            floats = [p for p in floats if 1 not in self.given[p].shape[:2]]
        if not floats and "main" not in roles:
            floats = [p for p, v in rest.items() if v.is_floating_point() and v.ndim == 2][:1]
        tokens = [p for p, v in rest.items() if v.dtype == torch.long and v.ndim == 2]
        tokens = [p for p in tokens if not self._sounds_like_mask(p)]
        tokens = tokens[:1] + [p for p in tokens[1:] if not self._goes_with_tokens(p)]
        packed = [p for p in tokens[1 if not floats else 0 :] if _looks_packed(rest[p])]
        if packed and "documents" not in roles:
            roles["documents"] = packed[:1]
        tokens = [p for p in tokens if p not in packed]
        self._sort_sequences(roles, floats or tokens, tokens if floats else tokens[:0])
        self._sort_masks(roles, rest)
        return roles

    def _sounds_like_mask(self, place: int | str) -> bool:
        name = self.name_of(place).lower()
        words = ("mask", "keep", "pad", *DOCUMENT_NAMES, "label", "position", "targets")
        return any(w in name for w in words)

    def _goes_with_tokens(self, place: int | str) -> bool:
        """Whether an argument says something of each token: its type, or its position."""
        value, name = self.given[place], self.name_of(place).lower()
        counted = torch.equal(value, torch.arange(value.shape[1]).expand_as(value))
        return counted or "type" in name or "pos" in name

    def _sort_sequences(
        self, roles: dict[str, list], sequences: list, others: list[int | str]
    ) -> None:
        """Tell queries from memory: by promise, by identity, by name, or by order."""
        if "main" not in roles and sequences:
            named = [p for p in sequences if self.name_of(p).lower() not in MEMORY_NAMES]
            decoder = [p for p in named if self.name_of(p).lower().startswith(DECODER_NAMES)]
            named = decoder or named
            first = named[0] if named and len({id(self.given[p]) for p in sequences}) > 1 else None
            roles["main"] = [sequences[0] if first is None else first]
        if "main" not in roles:
            return
        main = self.given[roles["main"][0]]
        for place in sequences:
            if place in roles["main"] or place in roles.get("memory", ()):
                continue
            if self.given[place] is main:
                roles["main"].append(place)
            elif self.given[place].ndim == main.ndim:
                roles.setdefault("memory", []).append(place)

    def _sort_masks(self, roles: dict[str, list], rest: dict[int | str, Tensor]) -> None:
        """Tell padding masks, of either side, from documents and labels."""
        used = {p for places in roles.values() for p in places}
        for place, value in rest.items():
            name = self.name_of(place).lower()
            if place in used or (value.ndim != 2 and not self._are_lengths(value, name, roles)):
                continue
            if self._is_one_a_sample(value, roles):
                roles.setdefault("each", []).append(place)
                continue
            target = name in {"targets", "target"} and "memory" not in roles
            if ("label" in name or target) and "labels" not in roles:
                roles["labels"] = [place]
            elif any(w in name for w in DOCUMENT_NAMES) and value.dtype == torch.long:
                roles.setdefault("documents", [place])
            elif self._is_mask(value, name, roles):
                other = "memory" in roles and any(w in name for w in MEMORY_NAMES if len(w) > 2)
                roles.setdefault("memory_padding" if other else "padding", [place])

    def _are_lengths(self, value: Tensor, name: str, roles: dict[str, list]) -> bool:
        """Whether an argument is the number of real tokens of each sample."""
        if value.ndim != 1 or value.is_floating_point() or "main" not in roles:
            return False
        main = self.given[roles["main"][0]]
        longest = {main.shape[self._axis(main)]}
        longest |= {self.given[p].shape[self._axis(self.given[p])] for p in roles.get("memory", ())}
        fits = value.dtype != torch.bool and len(value) == len(main) and bool((value >= 0).all())
        return "len" in name or (fits and len(main) > 1 and int(value.max()) in longest)

    def _is_one_a_sample(self, value: Tensor, roles: dict[str, list]) -> bool:
        """Whether an argument is one vector for each sample: the query of a pooling, say."""
        if "main" not in roles or not value.is_floating_point() or value.ndim != 2:
            return False
        main = self.given[roles["main"][0]]
        batch = main.shape[0]
        lengths = {main.shape[self._axis(main)]}
        lengths |= {self.given[p].shape[-2] for p in roles.get("memory", ()) if main.ndim > 2}
        return main.ndim == 3 and value.shape[0] == batch and value.shape[1] not in lengths

    def _is_mask(self, value: Tensor, name: str, roles: dict[str, list]) -> bool:
        if "main" not in roles:
            return False
        main = self.given[roles["main"][0]]
        if value.ndim == 1:
            return True
        if "type" in name or name.startswith("pos"):
            return False
        pairs = [main.shape[:2]] + [self.given[p].shape[:2] for p in roles.get("memory", ())]
        if main.ndim == 4:
            pairs.append((main.shape[0], main.shape[2]))
        if tuple(value.shape) not in [tuple(p) for p in pairs] or "attn_mask" == name:
            return False
        binary = value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all())
        return binary or bool(((value == 0) | (value < -1)).all())

    @property
    def main(self) -> Tensor | None:
        """The example of the main input."""
        return self.given[self.roles["main"][0]] if "main" in self.roles else None

    @property
    def axis(self) -> int:
        """The sequence axis of the main input."""
        return self._axis(self.main)

    def _axis(self, value: Tensor) -> int:
        if not value.is_floating_point():
            return value.ndim - 1
        return value.ndim - 2

    @property
    def is_qkv(self) -> bool:
        """Whether it takes queries, keys and values apart, and tokens are in all three."""
        places = self.roles.get("memory", ())
        if not self.names and len(places) == 2:
            return True  # a built-in function hides its signature
        names = {self.name_of(place).lower() for place in places}
        return bool(names) and names <= {"k", "v", "key", "value", "keys", "values"}

    @property
    def seen(self) -> str:
        """The role of the tokens that are attended to: the keys, where they are apart."""
        return "memory" if self.is_qkv and self.sizes.memory == self.sizes.length else "main"

    @property
    def batched(self) -> bool:
        """Whether the main input has a batch axis."""
        return self.main is not None and self.axis > 0

    @property
    def d_head(self) -> int | None:
        """The width of a head, if the number of heads was promised."""
        p = self.promises
        if p.n_heads is None or self.main is None or not self.main.is_floating_point():
            return None
        return self.main.shape[-1] // p.n_heads if self.main.ndim == 3 else self.main.shape[-1]

    def _given_sizes(self) -> Sizes:
        if self.main is None:
            return Sizes(1, 1, 1)
        batch = self.main.shape[0] if self.batched else 1
        length = self.main.shape[self.axis]
        memory = self.given[self.roles["memory"][0]] if "memory" in self.roles else None
        return Sizes(batch, length, length if memory is None else memory.shape[self._axis(memory)])


def _cloned(inputs: Inputs) -> Inputs:
    """Copies of all tensors; what was one tensor twice is one copy twice."""
    copies: dict[int, Tensor] = {}
    for value in inputs.values():
        if isinstance(value, Tensor):
            copies.setdefault(id(value), value.detach().clone())
    return {p: copies[id(v)] if isinstance(v, Tensor) else v for p, v in inputs.items()}


def _looks_packed(value: Tensor) -> bool:
    """Whether whole numbers rise by one from run to run: the document that each token is from."""
    if value.shape[1] < 2:
        return False
    steps = value[:, 1:] - value[:, :-1]
    runs = bool(((steps == 0) | (steps == 1)).all()) and bool((steps == 0).any())
    return runs and bool((value[:, 0] == value[0, 0]).all()) and int(value.max() - value.min()) > 1
