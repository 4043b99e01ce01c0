"""Examine a module from the command line: ``python -m attnlib.doctor module:Name ...``.

Exit status: 0 if healthy, 1 if there is a fault or a warning, 2 if there was nothing to examine.
"""

import argparse
import ast
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlib.doctor.examination import examine

EXAMPLES = """examples:
  python -m attnlib.doctor mymodule:MyAttention --init d_model=16 n_heads=2 \\
      --input 2,7,16 --promise causal=True n_heads=2
  python -m attnlib.doctor mymodule:encoder --input tokens:2,7,100 mask:2,7 \\
      --promise padding=1 padding_means=hide
"""


def value_of(text: str) -> Any:
    """A Python value from the command line, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def pairs(items: Sequence[str]) -> dict[str, Any]:
    """``["a=1", "b=hide"]`` as ``{"a": 1, "b": "hide"}``."""
    for item in items:
        if "=" not in item:
            raise ValueError(f"expected name=value; got {item!r}")
    return {name: value_of(text) for name, text in (item.split("=", 1) for item in items)}


def example(text: str) -> Tensor:
    """An example input: ``2,7,16`` numbers, ``tokens:2,7,100`` ids below 100, ``mask:2,7`` ones."""
    kind, _, shape = text.rpartition(":")
    sizes = [int(n) for n in shape.split(",")]
    if kind == "mask":
        return torch.ones(sizes, dtype=torch.bool)
    source = torch.Generator().manual_seed(0)
    if kind == "tokens":
        return torch.randint(0, sizes[-1], sizes[:-1], generator=source)
    if kind:
        raise ValueError(f"an input is numbers, tokens: or mask:; got {text!r}")
    return torch.randn(sizes, generator=source)


def found(target: str, init: dict[str, Any]) -> Callable:
    """What ``module:Name`` names; a class is built with ``init``."""
    module, _, name = target.partition(":")
    if not name:
        raise ValueError(f"expected module:Name; got {target!r}")
    sys.path.insert(0, "")
    thing = getattr(importlib.import_module(module), name)
    return thing(**init) if isinstance(thing, type) else thing


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m attnlib.doctor",
        description="Examine an attention module by how it behaves.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("target", help="module:Name of a class, a module or a function")
    made.add_argument("--init", nargs="*", default=[], metavar="NAME=VALUE", help="to build it")
    made.add_argument(
        "--input", nargs="+", default=["2,7,16"], help="2,7,16 or tokens:2,7,100 or mask:2,7"
    )
    made.add_argument("--promise", nargs="*", default=[], metavar="NAME=VALUE")
    made.add_argument("--seed", type=int, default=0)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine, print the report, and return the exit status."""
    given = parser().parse_args(arguments)
    try:
        patient = found(given.target, pairs(given.init))
        inputs = [example(text) for text in given.input]
        report = examine(patient, *inputs, seed=given.seed, **pairs(given.promise))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        print(f"cannot examine {given.target}: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
