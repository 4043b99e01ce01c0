"""Names that the book gives to things in PyTorch and Hugging Face are those of the pinned releases.

The names are those in the glossary, after "Elsewhere", and those in tables of names.
Keras is not installed; its names are not looked up.
"""

import inspect
import json
import re
from functools import cache
from pathlib import Path

import torch
import transformers as hf
from torch import nn
from torch.nn import functional
from torch.nn.attention import bias
from transformers.models.bart import modeling_bart
from transformers.models.bert import modeling_bert
from transformers.models.bloom import modeling_bloom
from transformers.models.llama import modeling_llama
from transformers.models.t5 import modeling_t5

BOOK = Path(__file__).parent.parent / "book"
INSTALLED = ("PyTorch", "Hugging Face")
SDPA = torch.ops.aten.scaled_dot_product_attention.default
NOT_THEIRS = {"mha", "True", "past_key_values"}  # a variable, a value, and the cache's former name


# ------------------------------------------------------------------------------- names in the book


def name_of(code: str) -> str:
    """The keyword, if there is one; else the last part of a dotted name, without its arguments."""
    keyword = re.search(r"(\w+)=", code)
    return keyword[1] if keyword else re.sub(r"\(.*| //.*", "", code).split(".")[-1]


def in_glossary(text: str) -> set[tuple[str, str]]:
    """Each name in code after "Elsewhere", with the library that the next brackets name."""
    found = set()
    for elsewhere in re.findall(r"Elsewhere: (.*?)(?: More: |\n|$)", text):
        codes = re.findall("`([^`]+)`", elsewhere)
        for before, owner in re.findall(
            r"([^()]*)\(([^()]*)\)", re.sub("`[^`]+`", "\0", elsewhere)
        ):
            mine, codes = codes[: before.count("\0")], codes[before.count("\0") :]
            found |= {
                (library, name_of(c)) for library in INSTALLED if library in owner for c in mine
            }
    return found


def in_tables(text: str) -> set[tuple[str, str]]:
    """Each name in code in a column that is headed by a library."""
    found, heads = set(), []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if not cells or set(line) <= set("|-"):
            heads = heads if cells else []
        elif not heads:
            heads = cells
        else:
            for head, cell in zip(heads, cells, strict=True):
                codes = re.findall("`([^`]+)`", re.sub("{[a-z]+}`[^`]+`", "", cell))
                found |= {
                    (lib, name_of(c)) for lib in INSTALLED if head.startswith(lib) for c in codes
                }
    return {(library, name) for library, name in found if name}


def in_book() -> set[tuple[str, str]]:
    found = in_glossary((BOOK / "glossary.md").read_text())
    found |= in_tables((BOOK / "notation.md").read_text().replace("| `torch.nn` |", "| PyTorch |"))
    for chapter in BOOK.glob("*.ipynb"):
        cells = json.loads(chapter.read_text())["cells"]
        prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        found |= in_tables("\n\n".join(text for text in prose if "| here |" in text))
    return {(library, name) for library, name in found if name not in NOT_THEIRS}


# --------------------------------------------------------------------------- names in the libraries


def has(owner: object, name: str) -> bool:
    """Whether it is an item, an argument, a layer, a parameter or an attribute of the owner."""
    if isinstance(owner, set):
        return name in owner
    if isinstance(owner, torch._ops.OpOverload):
        return name in {argument.name for argument in owner._schema.arguments}
    if isinstance(owner, nn.Module):
        parts = [*owner.named_modules(), *owner.named_parameters()]
        return name in {part.split(".")[-1] for part, _ in parts} | set(vars(owner))
    return hasattr(owner, name) or (callable(owner) and name in inspect.signature(owner).parameters)


def places_in_torch() -> list[tuple[object, str]]:
    with torch.device("meta"):
        mha, gru = nn.MultiheadAttention(8, 2), nn.GRU(1, 1)
        decoder = nn.TransformerDecoderLayer(8, 2)
    return [
        (functional, "scaled_dot_product_attention cross_entropy"),
        (functional.cross_entropy, "label_smoothing"),
        (functional.softmax, "dim"),
        (SDPA, "attn_mask is_causal enable_gqa scale"),
        (nn, "Dropout Embedding GRU LSTM LayerNorm MultiheadAttention TransformerDecoderLayer"),
        (nn, "Transformer TransformerEncoder"),
        (nn.Transformer, "generate_square_subsequent_mask"),
        (nn.Transformer.forward, "memory_key_padding_mask"),
        (nn.TransformerEncoderLayer, "norm_first d_model nhead dim_feedforward"),
        (nn.TransformerEncoder, "num_layers"),
        (decoder, "multihead_attn self_attn linear1 linear2"),
        (decoder.forward, "memory"),
        (mha, "in_proj_weight out_proj embed_dim num_heads head_dim"),
        (mha.forward, "key_padding_mask average_attn_weights"),
        (set(re.findall(r"\w+", mha.forward.__doc__)), "attn_output_weights"),
        (gru, "batch_first bidirectional"),
        (nn.utils.rnn.pad_sequence, "padding_value"),
        (bias, "causal_lower_right"),
        (torch.utils, "checkpoint"),
    ]


def places_in_hf() -> list[tuple[object, str]]:
    with torch.device("meta"):
        bart = hf.BartModel(hf.BartConfig(vocab_size=16, encoder_layers=1, decoder_layers=1))
        gpt2 = hf.GPT2Model(hf.GPT2Config(n_embd=12, n_layer=1))
        bert = hf.BertModel(hf.BertConfig(hidden_size=12, num_hidden_layers=1))
        t5 = hf.T5EncoderModel(hf.T5Config(num_layers=1))
        llama = modeling_llama.LlamaAttention(hf.LlamaConfig(hidden_size=32), layer_idx=0)
    eager = modeling_llama.eager_attention_forward
    return [
        (gpt2.forward, "cache attention_mask encoder_hidden_states encoder_attention_mask"),
        (gpt2, "mlp"),
        (bart, "encoder_attn self_attn q_proj k_proj v_proj out_proj"),
        (bert, "position_embeddings query key value dense"),
        (bert.config, "output_attentions"),
        (t5, "relative_attention_bias"),
        (llama, "scaling head_dim"),
        (hf.LlamaConfig(), "num_key_value_heads hidden_size num_attention_heads"),
        (hf.LlamaConfig(), "intermediate_size num_hidden_layers max_position_embeddings"),
        (hf.MistralConfig(), "sliding_window"),
        (hf.LongformerModel.forward, "global_attention_mask"),
        (hf.GenerationConfig(), "num_beams do_sample temperature decoder_start_token_id"),
        (
            set(hf.PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES),
            "bos_token eos_token pad_token",
        ),
        ({inspect.signature(hf.BertTokenizer.__init__).parameters["cls_token"].default}, "[CLS]"),
        (hf, "BertForMaskedLM GPT2LMHeadModel T5ForConditionalGeneration EncoderDecoderCache"),
        (hf, "BartForConditionalGeneration ViTForImageClassification"),
        (hf.modeling_outputs.BaseModelOutput, "attentions"),
        (modeling_bart, "shift_tokens_right"),
        (modeling_bert, "BertSelfAttention BertSelfOutput"),
        (modeling_bloom, "build_alibi_tensor"),
        (modeling_llama, "apply_rotary_pos_emb eager_attention_forward"),
        (set(eager.__code__.co_varnames), "attn_weights"),
        (modeling_t5.T5Attention, "_relative_position_bucket"),
    ]


@cache
def places() -> dict[tuple[str, str], object]:
    """For each name of a library: what it is a part of."""
    both = zip(INSTALLED, (places_in_torch(), places_in_hf()), strict=True)
    return {
        (library, name): owner
        for library, all_ in both
        for owner, names in all_
        for name in names.split()
    }


# -------------------------------------------------------------------------------------------- tests


def test_every_name_of_an_installed_library_in_the_book_has_its_place():
    assert in_book() == set(places())


def test_every_name_is_there_in_the_pinned_release():
    missing = [key for key, owner in places().items() if not has(owner, key[1])]
    assert not missing, f"the book names what the installed libraries don't have: {missing}"


def test_a_made_up_name_is_missed_wherever_it_is_looked_for():
    assert not [key for key, owner in places().items() if has(owner, "attends_to_nothing")]
    assert not has(places()["Hugging Face", "cache"], "past_key_values")  # its former name


def test_a_name_is_read_with_its_library():
    text = (
        "Elsewhere: `a(b=1)`, `c` in `D` (PyTorch), `x.e` (T5 in Hugging Face), `F` (Keras). More: "
    )
    assert in_glossary(text) == {
        ("PyTorch", "b"),
        ("PyTorch", "c"),
        ("PyTorch", "D"),
        ("Hugging Face", "e"),
    }
    table = "| here | PyTorch | Keras |\n|---|---|---|\n| `a` | `n.B(c)`, {cite}`d` | `e` |\n"
    assert in_tables(table) == {("PyTorch", "B")}
