"""The doctor from the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

from attnlib.doctor.__main__ import main

ROOT = Path(__file__).parents[1]


def cli(*arguments):
    command = [sys.executable, "-m", "attnlib.doctor", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


LAYER = ["torch.nn:TransformerEncoderLayer", "--input", "2,5,8", "--init"]
LAYER += ["d_model=8", "nhead=2", "dim_feedforward=16", "batch_first=True", "--promise"]


def test_the_command_prints_the_report_and_ends_with_a_status():
    result = cli(*LAYER, "causal=True")
    assert result.returncode == 1
    assert result.stdout.startswith("TransformerEncoderLayer: 1 fault\n")


@pytest.mark.messages
def test_the_status_tells_healthy_ill_and_nothing_to_examine(capsys):
    assert main([*LAYER, "causal=False"]) == 0
    assert main([*LAYER, "causal=True"]) == 1
    assert "future-leak" in capsys.readouterr().out
    for words, arguments in {
        "expected module:Name": ["torch.nn"],
        "No module named": ["no.such:Thing"],
        "has no attribute": ["torch.nn:Nothing"],
        "no such promise": [*LAYER, "casual=True"],
        "expected name=value": [*LAYER, "casual"],
        "an input is numbers": ["torch:relu", "--input", "words:2,3"],
    }.items():
        assert main(arguments) == 2
        assert words in capsys.readouterr().err


def test_tokens_and_masks_can_be_given_on_the_command_line(capsys):
    arguments = ["torch.nn:Embedding", "--init", "num_embeddings=20", "embedding_dim=4"]
    assert main([*arguments, "--input", "tokens:2,5,20"]) == 0
    assert "Embedding: healthy" in capsys.readouterr().out
    assert main(["torch:logical_not", "--input", "mask:2,5"]) == 0
