"""What every lab is made of: one Python class, one ES module, and a still picture of both.

A lab is an anywidget. Python supplies the numbers and the positions of the switches; the
arithmetic behind the switches is done in JavaScript, from those numbers alone, so that a lab
answers in a live notebook and on a plain page alike. Each lab also recomputes its result with
``attnlib`` in Python; the tests hold the two equal.

To make a lab ``foo``, write ``foo.js`` with ``export default { render }``, using the parts in
``lab.js``, and a class whose ``_esm`` is ``front_end("foo.js")``.
"""

import base64
import io
from collections.abc import Callable
from importlib.resources import files

import anywidget
import matplotlib
import traitlets
from matplotlib.figure import Figure

Number = int | float
VIEW = "application/vnd.jupyter.widget-view+json"


def front_end(*names: str) -> str:
    """Join files of this package, ``lab.js`` first, into one ES module that imports nothing.

    A module cannot import another one on a page that is opened from a file, so the shared parts
    are put in front. They go as text: anywidget watches files for changes, and text stays put.

    Args:
        names: The lab's own files.

    Returns:
        The source of the module.
    """
    return "\n".join(_read(name) for name in ("lab.js", *names))


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


class Lab(anywidget.AnyWidget):
    """A widget that can also be shown where nothing runs: as a sentence and as a picture.

    A subclass sets ``_esm``, adds its traits, and says what it shows in :meth:`sentence` and
    :meth:`still`.
    """

    _css = _read("lab.css")

    def sentence(self) -> str:
        """Say in one sentence what the lab shows now; it is the picture's alternative text."""
        raise NotImplementedError(f"{type(self).__name__} must say what it shows")

    def still(self) -> Figure:
        """Draw what the lab shows now."""
        raise NotImplementedError(f"{type(self).__name__} must draw what it shows")

    def __repr__(self) -> str:
        return self.sentence()  # the inherited one holds an address, new in every run

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict, dict]:
        view = {"version_major": 2, "version_minor": 1, "model_id": self.model_id}
        picture = base64.b64encode(_png(self.still)).decode("ascii")
        return {"text/plain": repr(self), "image/png": picture, VIEW: view}, {}


def _png(draw: Callable[[], Figure]) -> bytes:
    """Draw with matplotlib's own settings, so that the bytes depend on the lab alone."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        file = io.BytesIO()
        draw().savefig(file, format="png", dpi=100, metadata={"Software": None})
    return file.getvalue()


# ---------------------------------------------------------------------------------- traits
# traitlets has its own, but their messages don't say what to do, and their bounds are fixed.


class Given(traitlets.TraitType):
    """What a lab was made with, and keeps."""

    def validate(self, lab: Lab, value: object) -> object:
        """Accept the first value and no other one."""
        if lab.trait_has_value(self.name) and value != getattr(lab, self.name):
            kind = type(lab).__name__
            raise AttributeError(f"{self.name} of this {kind} is fixed; make a new {kind}")
        return value


class Choice(traitlets.TraitType):
    """A switch with a few positions; they may depend on the lab."""

    def __init__(self, positions: Callable[[Lab], tuple], default: object) -> None:
        super().__init__(default)
        self.positions = positions

    def validate(self, lab: Lab, value: object) -> object:
        """Refuse a value that is none of the positions."""
        positions = self.positions(lab)
        if type(value) is not type(positions[0]) or value not in positions:
            names = ", ".join(map(repr, positions))
            raise ValueError(f"{self.name} must be one of {names}; got {value!r}")
        return value


class Range(traitlets.TraitType):
    """A number between two ends; whole if both ends are. The ends may depend on the lab."""

    def __init__(self, ends: Callable[[Lab], tuple[Number, Number]], default: Number) -> None:
        super().__init__(default)
        self.ends = ends

    def validate(self, lab: Lab, value: object) -> Number:
        """Refuse a value of another kind or beyond the ends."""
        low, high = self.ends(lab)
        whole = isinstance(low, int) and isinstance(high, int)
        kind = "a whole number" if whole else "a number"
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise TypeError(f"{self.name} must be {kind}; got {value!r}")
        if not low <= value <= high:
            raise ValueError(f"{self.name} must be {kind} from {low} to {high}; got {value!r}")
        return value if whole else float(value)
