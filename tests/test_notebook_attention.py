"""Every attention that a notebook defines is tested for what it must do, not just executed.

A function counts as attention if it takes a query, a key and a value first. It has to be listed
below: as one that is right, or as one that is broken on purpose. The broken ones prove that the
checks can fail.
"""

import ast
import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

BOOK = Path(__file__).parents[1] / "book"

# How many dimensions their tensors have: 2 for one sequence, 3 with a batch, 4 with heads too.
RIGHT = {("qkv", "attend_by_loops"): 2, ("qkv", "attend"): 3, ("qkv", "masked_attend"): 4}
BROKEN = {("qkv", "wrong_axis"): 2, ("qkv", "broken"): 2}
BROKEN |= {("qkv", "narrow_scale"): 2, ("qkv", "blocked_for_allowed"): 2}
RIGHT |= {("cross", "ask_by_loops"): 2, ("capstone", "attend"): 4}
RIGHT |= {("causal", name): 2 for name in ("mask_before", "mask_after_and_divide", "fourth")}
BROKEN |= {("causal", name): 2 for name in ("mask_after", "first", "second", "third")}
RIGHT |= {("causal", "causal_attention"): 2}
RIGHT |= {("long_sequences", "equation"): 3, ("long_sequences", "my_tiled"): 4}
BROKEN |= {("long_sequences", n): 2 for n in ("forgetful", "padded_to_blocks", "with_dropout")}
# these bring a causal mask of their own
CAUSAL = {("causal", "causal_attention"), ("long_sequences", "my_tiled")}
DIMENSIONS = RIGHT | BROKEN
NAMES = ({"q", "query"}, {"k", "key"}, {"v", "value"})


def sources(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    code = ("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    return [cell for cell in code if not cell.lstrip().startswith("%")]


def definitions(notebook):
    """The imports and the functions of a notebook, without anything that runs."""
    nodes = [node for cell in sources(notebook) for node in ast.parse(cell).body]
    return [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom | ast.FunctionDef)]


def is_attention(node):
    if not isinstance(node, ast.FunctionDef) or len(node.args.args) < 3:
        return False
    pairs = zip(node.args.args[:3], NAMES, strict=True)
    return all(argument.arg.lower() in names for argument, names in pairs)


def attentions(notebook):
    return {(notebook.stem, n.name) for n in definitions(notebook) if is_attention(n)}


def load(chapter, name):
    """Run the imports and functions of a chapter, and return one function.

    It is given a causal mask if it wants one, and returns the output alone.
    """
    notebook = BOOK / f"{chapter}.ipynb"
    module = ast.Module(definitions(notebook), type_ignores=[])
    namespace = {}
    exec(compile(module, str(notebook), "exec"), namespace)
    function = namespace[name]

    def attend(q, k, v):
        from attnlib.masks import causal_mask

        wants_mask = "mask" in function.__code__.co_varnames[: function.__code__.co_argcount]
        mask = {"mask": causal_mask(q.shape[-2], k.shape[-2])} if wants_mask else {}
        axes = DIMENSIONS[chapter, name] - 2
        result = function(*(x[(None,) * axes] for x in (q, k, v)), **mask)
        output = result[0] if isinstance(result, tuple) else result
        return output[(0,) * axes]

    attend.is_causal = "mask" in function.__code__.co_varnames or (chapter, name) in CAUSAL
    return attend


def reference(attend, q, k, v):
    from attnlib.functional import attention
    from attnlib.masks import causal_mask

    mask = causal_mask(q.shape[-2], k.shape[-2]) if attend.is_causal else None
    return attention(q, k, v, mask=mask)[0]


def inputs():
    return [torch.randn(n, width, dtype=torch.float64) for n, width in ((5, 11), (7, 11), (7, 13))]


def equals_the_package(attend):
    """Same output and same gradients as attnlib, on sizes that all differ."""
    ours = [x.requires_grad_() for x in inputs()]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    output, expected = attend(*ours), reference(attend, *theirs)
    assert_close(output, expected)
    output.sum().backward()
    expected.sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a.grad, b.grad)


def keeps_queries_apart(attend):
    """Another query's change is nobody else's business."""
    q, k, v = inputs()
    changed = q.clone()
    changed[3] += 1.0
    others = torch.arange(5) != 3
    assert_close(attend(changed, k, v)[others], attend(q, k, v)[others])
    assert not torch.allclose(attend(changed, k, v)[3], attend(q, k, v)[3])


def averages(attend):
    """With equal values, any average gives that value."""
    q, k, v = inputs()
    same = v[:1].expand(7, 13)
    assert_close(attend(q, k, same), same[:5])


def assert_passes(check, attend):
    check(attend)


CHECKS = [equals_the_package, keeps_queries_apart, averages]


def test_every_attention_of_a_notebook_is_listed():
    found = set().union(*(attentions(path) for path in BOOK.glob("*.ipynb")))
    assert found == set(DIMENSIONS)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("chapter", "name"), sorted(RIGHT))
def test_it_behaves(chapter, name, check):
    assert_passes(check, load(chapter, name))


@pytest.mark.parametrize(("chapter", "name"), sorted(BROKEN))
def test_what_is_broken_on_purpose_is_caught(chapter, name):
    caught = []
    for check in CHECKS:
        try:
            check(load(chapter, name))
        except AssertionError:
            caught.append(check.__name__)
    assert caught
