"""The shapes that signatures promise are the shapes that come: checked while the tests run.

A second run of the tests, with every annotation of attnlib checked at each call. It leaves out the
tests of our own messages, as these checks speak first, and what the compiler cannot trace.
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
CHECKED = ["--jaxtyping-packages=attnlib,beartype.beartype", "-m", "not messages and not compiles"]
CHECKED += ["-p", "few_cases"]  # the same shapes come again and again
CHECKED += ["-k", "not published_pipeline and not cheat and not hugging"]  # slow, and no new shapes
FILES = [
    "test_masks.py",
    "test_functional.py",
    "test_positions.py",
    "test_layers.py",
    "test_record.py",
    "test_bert.py",
    "test_pretrained.py",
    "test_cache.py",
    "test_layers_decoding.py",
    "test_gpt.py",
    "test_model_inputs.py",
    "test_transformer.py",
    "test_encoder_decoder.py",
    "test_dropout.py",
    "test_generate.py",
    "test_t5.py",
    "test_tiled.py",
    "test_window_cache.py",
    "test_memory.py",
    "test_linformer.py",
    "test_bigbird.py",
    "test_longformer.py",
]


def run(files, folder=TESTS):
    """Run test files with shape checking, in a Python of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", *CHECKED]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *(str(folder / name) for name in files)],
        cwd=TESTS.parent,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_shape_is_as_promised():
    result = run(FILES)
    assert result.returncode == 0, result.stdout[-3000:]


CALLS = """
import torch
from attnlib.functional import attention, merge_heads

X = torch.zeros(2, 3)

def test_right(): assert merge_heads(torch.zeros(1, 2, 3, 4)) is not None
def test_rank(): assert merge_heads(torch.zeros(1, 2, 3)) is None
def test_size(): assert attention(X, X, X, mask=torch.ones(1, 1, 2, 5).bool()) is None
def test_dtype(): assert attention(X, X, X, mask=torch.ones(1, 1, 2, 2)) is None
"""


def test_what_breaks_a_promise_is_caught_before_our_own_checks(tmp_path):
    (tmp_path / "test_made_up.py").write_text(CALLS)
    result = run(["test_made_up.py"], tmp_path)
    assert "3 failed, 1 passed" in result.stdout
    caught = "E   jaxtyping.TypeCheckError: Type-check error whilst checking"
    assert sum(line.startswith(caught) for line in result.stdout.splitlines()) == 3
