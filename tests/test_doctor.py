"""The examination itself: it changes nothing, never raises, and says what it saw."""

import copy
import functools
from pathlib import Path

import pytest
import torch
from torch import nn

from attnlib.doctor import (
    CAUSES,
    Cause,
    Finding,
    Promises,
    Report,
    UnhealthyError,
    assert_batch_independent,
    assert_cache_consistent,
    assert_causal,
    assert_healthy,
    assert_padding_invariant,
    examine,
)
from attnlib.doctor.findings import PAGES
from attnlib.functional import attention
from attnlib.layers import MultiHeadAttention
from attnlib.masks import causal_mask

ROOT = Path(__file__).parents[1]
D, HEADS = 12, 2


def encoder(**options):
    options = {"dropout": 0.1, "batch_first": True} | options
    return nn.TransformerEncoderLayer(D, HEADS, 20, **options)


def causal(x):
    return attention(x, x, x, mask=causal_mask(x.shape[1]))[0]


def leaky(x):
    return attention(x, x, x)[0]


def masked(x, keep):
    return attention(x, x, x, mask=keep[:, None, None, :])[0]


X, KEEP = torch.randn(2, 5, D), torch.ones(2, 5, dtype=torch.bool)


# ------------------------------------------------------------------ nothing is changed


class Restless(nn.Module):
    """Counts its calls, keeps what it saw, writes into a buffer and a list."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls, self.seen = encoder(), 0, []
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape)
        self.total += 1
        self.last = x
        return self.inner(x)


@pytest.mark.parametrize("wrapped", [False, True], ids=["module", "module in a function"])
def test_the_patient_is_left_as_it_was(wrapped):
    module = Restless()
    module.inner.linear1.eval()  # a mixture of modes, as fine-tuning has it
    module(X).sum().backward()
    before = copy.deepcopy(module.state_dict())
    grads = {n: p.grad.clone() for n, p in module.named_parameters()}
    modes = [m.training for m in module.modules()]
    attributes, x, state = dict(vars(module)), X.clone(), torch.get_rng_state()
    seen = list(module.seen)

    examine((lambda x: module(x)) if wrapped else module, X, causal=False, n_heads=HEADS)

    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(X, x)
    assert [m.training for m in module.modules()] == modes
    assert all(torch.equal(p.grad, grads[n]) for n, p in module.named_parameters())
    assert all(torch.equal(value, before[n]) for n, value in module.state_dict().items())
    assert (module.calls, module.seen) == (1, seen)
    assert module.last is attributes["last"]


def test_a_module_behind_a_partial_or_a_bound_method_is_left_as_it_was():
    module = Restless()
    for called in (functools.partial(module), module.forward):
        examine(called, X, causal=False)
        assert module.calls == 0
        assert module.total == 0


def test_the_same_seed_gives_the_same_report():
    one, two = (examine(leaky, X, causal=True, seed=3) for _ in range(2))
    assert one == two


# ------------------------------------------------------------------ it never raises


class Breaks(nn.Module):
    """Raises at a chosen call."""

    def __init__(self, at):
        super().__init__()
        self.at, self.linear = at, nn.Linear(D, D)

    def forward(self, x):
        if len(x) == self.at or x.shape[1] == self.at:
            raise KeyError("no such luck")
        return self.linear(x)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 7])
def test_an_error_of_the_patient_is_a_finding_or_a_remark(at):
    report = examine(Breaks(at), X)
    assert "no such luck" in " ".join(str(report).split())
    if at in (2, 5):
        assert report.findings[0].cause == "raises"


@pytest.mark.parametrize(
    "output",
    [None, "text", {}, [], torch.tensor(3.0), torch.zeros(0), torch.ones(2, 5).long(), (X, None)],
    ids=["None", "text", "dict", "list", "number", "empty", "whole numbers", "pair"],
)
def test_any_output_is_survived(output):
    assert examine(lambda x: output, X).patient == "<lambda>"


@pytest.mark.messages
def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="must be a module or a function; got Tensor"):
        examine(X, X)


@pytest.mark.messages
def test_an_unknown_promise_is_refused():
    with pytest.raises(TypeError, match="no such promise: casual; there are causal, main, "):
        examine(leaky, X, casual=True)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("promise", "words"),
    [
        ({"padding_means": "yes"}, "padding_means must be one of"),
        ({"left_padding": "right"}, "left_padding must be False, True or 'only'; got 'right'"),
        ({"by_design": ("nonsense",)}, "by_design holds unknown causes: \\['nonsense'\\]"),
    ],
)
def test_a_promise_that_means_nothing_is_refused(promise, words):
    with pytest.raises(ValueError, match=words):
        Promises(**promise)


# ------------------------------------------------------------------ the report


@pytest.mark.messages
def test_a_finding_must_have_a_known_cause_and_severity():
    with pytest.raises(ValueError, match="no cause is called 'bad luck'"):
        Finding("bad luck", "fault", "")
    with pytest.raises(ValueError, match="no cause is called 'bad luck'"):
        Finding("nan", "fault", "", others=("bad luck",))
    with pytest.raises(ValueError, match="severity must be one of"):
        Finding("nan", "deadly", "")


def test_faults_and_warnings_count_and_notes_do_not():
    ok = {s: Report("x", (Finding("nan", s, ""),)).ok for s in ("fault", "warning", "note")}
    assert ok == {"fault": False, "warning": False, "note": True}
    assert Report("x", ()).ok


def test_the_report_prints_evidence_fix_and_chapter():
    text = str(examine(leaky, X, causal=True))
    assert text.startswith("leaky: 1 fault\n  FAULT    the output at a position depends on later")
    assert "seen: outputs moved by up to " in text
    assert "fix:  add the triangle" in text
    assert "read: Causal attention" in text
    assert max(map(len, text.splitlines())) <= 100
    assert str(examine(causal, X, causal=True)) == "causal: healthy"


def test_the_html_is_a_table_with_caption_and_headed_rows_and_columns():
    html = examine(leaky, X, causal=True)._repr_html_()
    assert html.startswith("<table><caption>leaky: 1 fault</caption><thead>")
    assert html.count('<th scope="col">') == 5
    assert html.count('<th scope="row">') == 1
    wicked = Report("<b>", (Finding("nan", "fault", "<script>"),))._repr_html_()
    assert "<script>" not in wicked
    assert "&lt;b&gt;" in wicked


@pytest.mark.messages
def test_raise_for_faults_carries_the_report():
    report = examine(leaky, X, causal=True)
    with pytest.raises(UnhealthyError) as caught:
        report.raise_for_faults()
    assert str(caught.value) == str(report)
    examine(causal, X, causal=True).raise_for_faults()


def test_every_cause_has_a_title_a_fix_and_a_chapter():
    assert all(cause.title and cause.fix and cause.chapter for cause in CAUSES.values())
    titles = [cause.title for cause in CAUSES.values()]
    assert len(titles) > 80


def test_each_chapter_that_a_finding_names_is_a_section_of_the_book():
    book = Path(__file__).parents[1] / "book"
    pages = {Finding(cause, "note", "seen").page for cause in CAUSES}
    assert pages == set(PAGES.values())
    for page, label in (link.split(".html#") for link in pages):
        assert f"({label})=" in (book / f"{page}.ipynb").read_text("utf-8"), (page, label)
        assert f"file: book/{page}\n" in (book.parent / "_toc.yml").read_text()


def test_a_report_in_a_notebook_links_to_the_book():
    html = examine(leaky, X, causal=True)._repr_html_()
    assert '<td><a href="causal.html#chapter-causal">Causal attention</a></td>' in html


def test_a_cause_is_complete_and_cannot_be_changed():
    cause = CAUSES["future-leak"]
    assert cause.title.startswith("the output at a position")
    with pytest.raises(AttributeError):
        cause.title = "all is well"
    with pytest.raises(TypeError):
        Cause("title", "fix")


def test_probes_are_called_by_file_and_function():
    probes = examine(causal, X, causal=True).probes
    assert {"seeing.future", "labels.ignored", "parameters.ignored"} <= set(probes)


def test_the_worst_comes_first():
    odd = nn.Sequential(nn.Conv1d(5, 5, 1), nn.Linear(D, D))
    odd[0].weight.requires_grad_(False)
    report = examine(odd, X, causal=True)
    assert [f.severity for f in report.findings][-1] == "note"
    assert report.findings[0].severity == "fault"


def test_every_cause_is_named_by_some_probe():
    package = ROOT / "attnlib" / "doctor"
    texts = [p.read_text() for p in package.rglob("*.py") if p.name != "findings.py"]
    unused = {c for c in CAUSES if not any(f'"{c}"' in text for text in texts)}
    assert unused == set()


def test_what_is_by_design_is_noted_and_not_blamed():
    report = examine(leaky, X, causal=True, by_design=("future-leak",))
    assert report.ok
    assert [f.severity for f in report.findings] == ["note"]


# ------------------------------------------------------------------ single checks


def cached(x, cache=None):
    total = x.cumsum(1) + (0 if cache is None else cache)
    return total, total[:, -1:]


def over_batch(x):
    return leaky(x.transpose(0, 1)).transpose(0, 1)


def hiding(x, m):
    return masked(x, ~m)


def forgetful(x, cache=None):
    total = x.cumsum(1)
    return total, total[:, -1:]


@pytest.mark.parametrize(
    ("check", "good", "bad", "inputs", "promises"),
    [
        (assert_causal, causal, leaky, (X,), {}),
        (assert_healthy, causal, leaky, (X,), {"causal": True}),
        (assert_padding_invariant, masked, lambda x, keep: leaky(x), (X, KEEP), {}),
        (assert_batch_independent, leaky, over_batch, (X,), {}),
        (assert_padding_invariant, hiding, masked, (X, ~KEEP), {"padding_means": "hide"}),
        (assert_cache_consistent, cached, forgetful, (X,), {"cache": "cache"}),
    ],
    ids=["causal", "healthy", "padding", "batch", "hiding", "cache"],
)
def test_a_check_passes_the_good_and_fails_the_bad(check, good, bad, inputs, promises):
    assert check(good, *inputs, **promises) in (None, examine(good, *inputs, **promises))
    assert (check is assert_healthy) == (check(good, *inputs, **promises) is not None)
    with pytest.raises(AssertionError, match=r": \d fault"):
        check(bad, *inputs, **promises)


class Growing(nn.Module):
    """Causal, and changed by every new length that it sees."""

    def __init__(self):
        super().__init__()
        self.lengths = set()

    def forward(self, x):
        self.lengths.add(x.shape[1])
        return causal(x) * len(self.lengths)


def test_a_check_looks_at_its_own_matter_alone():
    assert_batch_independent(leaky, X, causal=True)  # it leaks, but samples are independent
    assert "stale-state" in examine(Growing(), X, causal=True).causes
    assert_causal(Growing(), X)


@pytest.mark.messages
def test_a_check_fails_for_what_cannot_run():
    def broken(x):
        raise RuntimeError("no such luck")

    with pytest.raises(AssertionError, match="no such luck"):
        assert_causal(broken, X)


@pytest.mark.messages
def test_a_check_that_could_not_look_does_not_pass():
    with pytest.raises(UnhealthyError, match=r"could not be checked: .* returns str, and"):
        assert_causal(lambda x: "text", X)


@pytest.mark.messages
def test_padding_cannot_be_checked_without_a_mask():
    with pytest.raises(ValueError, match="no input is a padding mask"):
        assert_padding_invariant(leaky, X)


# ------------------------------------------------------------------ healthy patients


def test_our_own_attention_is_healthy():
    layer = MultiHeadAttention(D, HEADS)
    assert_healthy(layer, X, causal=False, n_heads=HEADS)


@pytest.mark.parametrize("norm_first", [False, True])
def test_pytorchs_encoder_layer_is_healthy(norm_first):
    layer = encoder(norm_first=norm_first)
    promises = {"causal": False, "n_heads": HEADS, "dropout": 0.1}
    assert_healthy(layer, X, kwargs={"src_key_padding_mask": ~KEEP}, **promises)


def test_padding_that_stands_on_the_left_alone_is_looked_for_there():
    def from_the_end(x, keep):
        first = keep.shape[1] - keep.sum(1, keepdim=True)
        return masked(x, torch.arange(keep.shape[1]) >= first)

    assert_healthy(from_the_end, X, KEEP, causal=False, left_padding="only")
    assert not examine(from_the_end, X, KEEP, causal=False, left_padding=True).ok


def test_order_that_matters_between_the_halves_alone_is_seen():
    def halves(x):  # each half is attention, and the left one counts twice
        left, right = (scores.exp() for scores in (x @ x.mT / 2).chunk(2, -1))
        weights = torch.cat([2 * left, right], -1)
        return weights / weights.sum(-1, keepdim=True) @ x

    x = torch.randn(2, 11, 4)
    assert examine(halves, x, order_matters=False).causes == {"order-visible"}
    assert examine(lambda x: (x @ x.mT / 2).softmax(-1) @ x, x, order_matters=False).ok
