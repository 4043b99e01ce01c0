"""A module on the examination table: its inputs, made anew in any size, and ways to run it."""

import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnlib.doctor.promises import Promises
from attnlib.doctor.trace import Edit, Hearing, Listener, tensors_in

Inputs = dict[int | str, Any]  # by position or by name

MEMORY_NAMES = {"memory", "mem", "src", "source", "context", "ctx", "kv", "key", "k", "encoder"}
MEMORY_NAMES |= {"enc", "enc_out", "encoder_output", "encoder_hidden_states", "encoder_out"}
MEMORY_NAMES |= {"value", "values", "v", "keys", "source_states", "cond", "image"}
DECODER_NAMES = ("decoder", "tgt", "trg", "target")
HIDE_NAMES = ("key_padding_mask", "pad", "hide", "hidden", "ignore")
DOCUMENT_NAMES = ("doc", "seg", "packed", "cu_seq", "sequence_id")
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


@dataclass(frozen=True)
class Sizes:
    """Numbers of samples, of tokens, and of tokens in the memory."""

    batch: int
    length: int
    memory: int


def modules_behind(called: Any) -> list[nn.Module]:
    """The modules that a callable holds: itself, or in a closure, a partial or a bound method."""
    if isinstance(called, nn.Module):
        return [called]
    held: list[Any] = [getattr(called, "__self__", None)]
    if isinstance(called, functools.partial):
        held += [called.func, *called.args, *called.keywords.values()]
    held += [c.cell_contents for c in getattr(called, "__closure__", None) or () if c]
    held += list(getattr(called, "__defaults__", None) or ())
    names = getattr(getattr(called, "__code__", None), "co_names", ())
    held += [called.__globals__[n] for n in names if n in getattr(called, "__globals__", {})]
    found: list[nn.Module] = []
    for item in held:
        if isinstance(item, nn.Module):
            found.append(item)
        elif isinstance(item, functools.partial) or inspect.ismethod(item):
            found += modules_behind(item)
    return found


@contextmanager
def held_still(called: Any) -> Iterator[None]:
    """Put back, at the end, all that a callable's modules hold: modes, numbers and attributes."""
    parts = {id(m): m for top in modules_behind(called) for m in top.modules()}.values()
    kept = []
    for part in parts:
        tensors = [
            t for t in (*part._parameters.values(), *part._buffers.values()) if t is not None
        ]
        boxes = [(v, copy.copy(v)) for v in vars(part).values() if isinstance(v, dict | list)]
        state = [(t, t.detach().clone(), t.grad, t.requires_grad) for t in tensors]
        kept.append((part, dict(vars(part)), boxes, state))
    try:
        yield
    finally:
        for part, attributes, boxes, tensors in kept:
            vars(part).clear()
            vars(part).update(attributes)
            for box, content in boxes:
                _refill(box, content)
            for tensor, value, grad, asks in tensors:
                with torch.no_grad():
                    if not torch.equal(tensor, value) and not value.isnan().any():
                        tensor.copy_(value)
                tensor.requires_grad_(asks) if tensor.is_leaf else None
                tensor.grad = grad


def _refill(box: dict | list, content: dict | list) -> None:
    """Give a container its old content back, if it has changed."""
    if len(box) == len(content) and all(
        a is b
        for a, b in zip(
            box.values() if isinstance(box, dict) else box,
            content.values() if isinstance(content, dict) else content,
            strict=True,
        )
    ):
        return
    box.clear()
    box.update(content) if isinstance(box, dict) else box.extend(content)


def _cloned(inputs: Inputs) -> Inputs:
    """Copies of all tensors; what was one tensor twice is one copy twice."""
    copies: dict[int, Tensor] = {}
    for value in inputs.values():
        if isinstance(value, Tensor):
            copies.setdefault(id(value), value.detach().clone())
    return {p: copies[id(v)] if isinstance(v, Tensor) else v for p, v in inputs.items()}


def main_tensor(output: Any, which: int | str | None) -> Tensor:
    """The main tensor of whatever a module returns."""
    if which is not None:
        output = (
            output[which]
            if isinstance(which, int) or isinstance(output, dict)
            else getattr(output, which)
        )
    for name in ("logits", "last_hidden_state"):
        if isinstance(output, dict) and name in output:
            return output[name]
    found = list(tensors_in(output))
    tensor = next((t for t in found if t.ndim > 1), found[0] if found else None)
    if tensor is None:
        raise TypeError(f"the module returns {type(output).__name__}, and no tensor in it")
    return tensor


class Patient:
    """A callable with its example inputs and its promises.

    The callable itself is never run where a copy can be: each run takes a copy. ``roles`` says
    which argument is what.
    """

    def __init__(
        self, called: Callable, args: tuple, kwargs: dict[str, Any], promises: Promises, seed: int
    ) -> None:
        self.called = called
        self.promises = promises
        self.seed = seed
        self.given: Inputs = _cloned({**dict(enumerate(args)), **kwargs})
        self.turned: set[int | str] = set()  # arguments that have the batch second
        self.inferred: list[str] = []
        self.stateful = False
        self.random = False  # whether eval mode rolls dice: then every call rolls the same
        self.refused: dict[Sizes, str] = {}
        self._copy: Any = None
        self.names = self._parameter_names()
        if not promises.batch_first:
            self._turn_given()
        self.roles = self._find_roles()
        self.sizes = self.given_sizes = self._given_sizes()

    # ------------------------------------------------------------------ who is who

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

    # ------------------------------------------------------------------ sizes and inputs

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
        left: bool = False,
        scale: float = 1.0,
        salt: int = 0,
    ) -> Inputs:
        """New inputs of any size, with random content.

        ``lengths`` says how many tokens of each sample are real; all are if it is left out.
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
        memory_keep = self.keep(sizes.batch, sizes.memory, memory_lengths, left)
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

    @staticmethod
    def keep(batch: int, length: int, lengths: list[int] | None, left: bool = False) -> Tensor:
        """A mask that is True at real tokens."""
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
        shown = _shown_meaning(value)
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

    # ------------------------------------------------------------------ running

    def fresh(self) -> Any:
        """A copy that no earlier call has touched, or itself if it cannot be copied."""
        if not self.is_module:
            return self.called
        copies: dict[int, Any] = {}
        try:
            copied = copy.deepcopy(self.called, copies)
        except Exception:
            return self.called
        for part in copied.modules():
            for name, value in vars(part).items():
                if isinstance(value, types.FunctionType) and value.__closure__:
                    vars(part)[name] = _with_copies(value, copies)
        return copied

    def working(self) -> Any:
        """The copy that the probes share; a new one for each run if calls leave traces."""
        if self.stateful or self._copy is None:
            self._copy = self.fresh()
        return self._copy

    def replace(self, module: nn.Module) -> None:
        """Examine another module in place of this one: a copy with its gates opened, say."""
        self.called, self._copy = module, None
        for name in ("y", "heard", "floor"):
            vars(self).pop(name, None)

    def call(
        self,
        inputs: Inputs,
        module: Any = None,
        train: bool = False,
        grad: bool = False,
        more: dict[str, Any] | None = None,
    ) -> Any:
        """Run it, and return all that it returns."""
        module = self.working() if module is None else module
        self._switch(module, train)
        inputs = {p: v.transpose(0, 1) if p in self.turned else v for p, v in inputs.items()}
        args = [inputs[place] for place in sorted(p for p in inputs if isinstance(p, int))]
        kwargs = {name: v for name, v in inputs.items() if isinstance(name, str)} | (more or {})
        if self.random:
            torch.manual_seed(self.seed)
        with torch.set_grad_enabled(grad):
            return module(*args, **kwargs)

    def _switch(self, module: Any, train: bool) -> None:
        if isinstance(module, nn.Module):
            if module.training != train or any(m.training != train for m in module.modules()):
                module.train(train)
        else:
            for behind in modules_behind(module):
                behind.train(train)

    def out(self, inputs: Inputs, **how: Any) -> Tensor:
        """Run it, and return the main tensor, batch first, detached."""
        return self.main_of(self.call(inputs, **how)).detach()

    def main_of(self, output: Any) -> Tensor:
        """The main tensor of an output, batch first."""
        found = main_tensor(output, self.promises.output)
        if self.turned and found.ndim == 3:
            found = found.transpose(0, 1)
        return found

    def hear(
        self,
        inputs: Inputs,
        edits: dict[int, Edit] | None = None,
        more: dict | None = None,
        module: Any = None,
    ) -> tuple[Tensor, Hearing]:
        """Run it and listen to its operations; ``edits`` change what some of them return."""
        module = self.working() if module is None else module
        listener = Listener(edits)
        with listener:
            output = self.call(inputs, module=module, grad=True, more=more)
        behind = modules_behind(module)
        parameters = [p for m in behind for p in m.parameters()]
        return self.main_of(output).detach(), Hearing(listener, parameters)

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


def _with_copies(function: types.FunctionType, copies: dict[int, Any]) -> types.FunctionType:
    """A function whose closure holds copies of what it held: ``deepcopy`` does not look there."""
    cells = [
        types.CellType(copies.get(id(c.cell_contents), c.cell_contents))
        for c in function.__closure__
    ]
    made = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _looks_packed(value: Tensor) -> bool:
    """Whether whole numbers rise by one from run to run: the document that each token is from."""
    if value.shape[1] < 2:
        return False
    steps = value[:, 1:] - value[:, :-1]
    runs = bool(((steps == 0) | (steps == 1)).all()) and bool((steps == 0).any())
    return runs and bool((value[:, 0] == value[0, 0]).all()) and int(value.max() - value.min()) > 1


def _shown_meaning(mask: Tensor) -> str | None:
    """What the example of a mask says about True: a side where all are the same is real."""
    if mask.ndim != 2 or not bool(((mask == 0) | (mask == 1)).all()):
        return None
    for side, other in ((0, -1), (-1, 0)):
        real = mask[0, side]
        if bool((mask[:, side] == real).all()) and bool((mask[:, other] != real).any()):
            return "keep" if bool(real) else "hide"
    return None


def _rows_changed(old: Tensor, new: Tensor, axis: int) -> Tensor:
    """For each position along an axis, whether anything there is new."""
    if old.shape != new.shape:
        return torch.zeros(0, dtype=torch.bool)
    return (old != new).movedim(axis, 0).flatten(1).any(1)


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
