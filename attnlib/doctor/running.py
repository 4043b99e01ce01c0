"""Ways to run a patient: on a copy, in a mode, and with its operations heard."""

import copy
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnlib.doctor.promises import Promises
from attnlib.doctor.roles import Inputs, Roles
from attnlib.doctor.stillness import modules_behind
from attnlib.doctor.trace import Edit, Hearing, Listener, tensors_in


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


class Running(Roles):
    """Runs the callable; where a copy can be made, the callable itself is never run."""

    def __init__(self, called: Callable, given: Inputs, promises: Promises, seed: int) -> None:
        super().__init__(called, given, promises, seed)
        self.stateful = False
        self.random = False  # whether eval mode rolls dice: then every call rolls the same
        self._copy: Any = None

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
