"""What all labs share: the module, the still, the sentence, and the traits that refuse."""

import base64

import pytest
import torch
import traitlets
from matplotlib.figure import Figure

from attnlib.widgets.lab import VIEW, Choice, Given, Lab, Range, front_end


class Dice(Lab):
    _esm = "export default { render() {} };"
    sides = Given(None).tag(sync=True)
    colour = Choice(lambda lab: ("red", "blue"), default="red").tag(sync=True)
    shown = Range(lambda lab: (1, lab.sides), default=1).tag(sync=True)
    loaded = Choice(lambda lab: (False, True), default=False).tag(sync=True)
    weight = Range(lambda lab: (0.5, 2.0), default=1.0).tag(sync=True)

    def sentence(self):
        return f"A {self.colour} die that shows {self.shown}."

    def still(self):
        figure = Figure(figsize=(1, 1))
        figure.text(0.1, 0.1, str(self.shown))
        return figure


def test_the_module_is_the_shared_parts_and_the_labs_own():
    module = front_end("attention.js")
    assert module.startswith(front_end())
    assert module.index("class Matrix") < module.index("export function compute")
    two = front_end("attention.js", "lab.css")
    assert two.startswith(module)
    assert two.endswith(Lab._css)


def test_a_lab_shows_a_sentence_a_picture_and_the_widget():
    die = Dice(sides=6, shown=5)
    bundle, metadata = die._repr_mimebundle_()
    assert bundle["text/plain"] == repr(die) == "A red die that shows 5."
    picture = base64.b64decode(bundle["image/png"])
    assert picture.startswith(b"\x89PNG")
    assert b"Software" not in picture  # that would change with every release of matplotlib
    assert bundle[VIEW]["model_id"] == die.model_id
    assert metadata == {}


def test_the_picture_depends_on_the_lab_and_on_nothing_else():
    def picture(**switches):
        return Dice(sides=6, **switches)._repr_mimebundle_()[0]["image/png"]

    assert picture(shown=5) == picture(shown=5)
    assert picture(shown=5) != picture(shown=6)


def test_the_picture_ignores_the_settings_of_the_notebook():
    from matplotlib import rc_context, rcParams

    die = Dice(sides=6)
    plain = die._repr_mimebundle_()
    with rc_context({"font.size": 30, "figure.facecolor": "black", "savefig.dpi": 50}):
        assert die._repr_mimebundle_() == plain
        assert rcParams["font.size"] == 30  # and leaves them alone


def test_a_switch_can_be_set_and_its_limits_follow_the_lab():
    die = Dice(sides=20)
    die.shown, die.colour, die.weight = 17, "blue", 2
    assert (die.shown, die.colour) == (17, "blue")
    assert die.weight == 2.0
    assert isinstance(die.weight, float)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("sides", 8, AttributeError, "sides of this Dice is fixed; make a new Dice"),
        ("colour", "green", ValueError, "colour must be one of 'red', 'blue'; got 'green'"),
        ("colour", 1, ValueError, "colour must be one of 'red', 'blue'; got 1"),
        ("colour", torch.ones(2), ValueError, "colour must be one of .* got tensor"),
        ("loaded", 1, ValueError, "loaded must be one of False, True; got 1"),
        ("shown", 7, ValueError, "shown must be a whole number from 1 to 6; got 7"),
        ("shown", 2.0, TypeError, "shown must be a whole number; got 2.0"),
        ("shown", True, TypeError, "shown must be a whole number; got True"),
        ("weight", 2.5, ValueError, "weight must be a number from 0.5 to 2.0; got 2.5"),
        ("weight", float("nan"), ValueError, "weight must be a number from 0.5 to 2.0; got nan"),
        ("weight", "1", TypeError, "weight must be a number; got '1'"),
    ],
)
def test_a_switch_refuses_what_it_does_not_have(name, value, error, message):
    die = Dice(sides=6)
    before = getattr(die, name)
    with pytest.raises(error, match=message):
        setattr(die, name, value)
    assert getattr(die, name) == before


@pytest.mark.messages
def test_a_lab_that_says_and_draws_nothing_is_told_so():
    class Empty(Lab):
        _esm = "export default { render() {} };"
        count = traitlets.Int(0)

    with pytest.raises(NotImplementedError, match="Empty must say what it shows"):
        repr(Empty())
    with pytest.raises(NotImplementedError, match="Empty must draw what it shows"):
        Empty().still()
