"""The names that the glossary gives to things in other libraries are names of the pinned releases.

Keras is not installed; its names are not in this table.
"""

import inspect
import re
from functools import cache
from pathlib import Path

import torch
import transformers as hf
from torch import nn
from torch.nn import functional
from transformers.models.bart import modeling_bart
from transformers.models.llama import modeling_llama

GLOSSARY = Path(__file__).parent.parent / "book" / "glossary.md"
INSTALLED = ("PyTorch", "Hugging Face")
SDPA = torch.ops.aten.scaled_dot_product_attention.default


def names_of(text: str) -> set[tuple[str, str]]:
    """Each name in code, with the library that the next brackets say it belongs to."""
    found = set()
    for elsewhere in re.findall(r"Elsewhere: (.*?)(?: More: |\n|$)", text):
        codes = re.findall("`([^`]+)`", elsewhere)
        numbered = re.sub("`[^`]+`", "\0", elsewhere)
        for before, owner in re.findall(r"([^()]*)\(([^()]*)\)", numbered):
            mine, codes = codes[: before.count("\0")], codes[before.count("\0") :]
            found |= {(library, code) for library in INSTALLED if library in owner for code in mine}
    return found


def has(owner: object, name: str) -> bool:
    """Whether it is an attribute, a layer, a parameter, an argument or an item of the owner."""
    if isinstance(owner, (set, tuple, list)):
        return name in owner
    if isinstance(owner, torch._ops.OpOverload):
        return name in {argument.name for argument in owner._schema.arguments}
    if isinstance(owner, nn.Module):
        parts = [*owner.named_modules(), *owner.named_parameters()]
        return name in {part.split(".")[-1] for part, _ in parts}
    return hasattr(owner, name) or (callable(owner) and name in inspect.signature(owner).parameters)


@cache
def places() -> dict[tuple[str, str], tuple[object, str]]:
    """For each name in the glossary: what it belongs to, and what it is called there."""
    with torch.device("meta"):
        bart = hf.BartModel(hf.BartConfig(vocab_size=16, encoder_layers=1, decoder_layers=1))
        gpt2 = hf.GPT2Model(hf.GPT2Config(vocab_size=16, n_embd=12, n_layer=1))
        bert = hf.BertModel(hf.BertConfig(vocab_size=16, hidden_size=12, num_hidden_layers=1))
        t5 = hf.T5EncoderModel(hf.T5Config(vocab_size=16, num_layers=1))
        llama = modeling_llama.LlamaAttention(hf.LlamaConfig(hidden_size=32), layer_idx=0)
        decoder = nn.TransformerDecoderLayer(8, 2)
        mha = nn.MultiheadAttention(8, 2)
    writes = hf.GenerationConfig()
    special = hf.PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES
    first = inspect.signature(hf.BertTokenizer.__init__).parameters["cls_token"].default
    of_torch = {
        "scaled_dot_product_attention": functional,
        "attn_mask": SDPA,
        "is_causal": SDPA,
        "enable_gqa": SDPA,
        "scale": SDPA,
        "multihead_attn": decoder,
        "TransformerDecoderLayer": nn,
        "self_attn": decoder,
        "linear1": decoder,
        "linear2": decoder,
        "memory": decoder.forward,
        "cross_entropy": functional,
        "cross_entropy(label_smoothing=...)": (functional.cross_entropy, "label_smoothing"),
        "nn.Dropout": (nn, "Dropout"),
        "nn.Embedding": (nn, "Embedding"),
        "nn.GRU": (nn, "GRU"),
        "nn.LSTM": (nn, "LSTM"),
        "nn.LayerNorm": (nn, "LayerNorm"),
        "nn.MultiheadAttention": (nn, "MultiheadAttention"),
        "torch.utils.checkpoint": (torch.utils, "checkpoint"),
        "key_padding_mask": mha.forward,
        "in_proj_weight": mha,
        "padding_value": nn.utils.rnn.pad_sequence,
        "norm_first=True": (nn.TransformerEncoderLayer, "norm_first"),
        "softmax(dim=-1)": (functional.softmax, "dim"),
    }
    of_hf = {
        "cache": gpt2.forward,
        "encoder_hidden_states": gpt2.forward,
        "attention_mask": gpt2.forward,
        "mlp": gpt2,
        "encoder_attn": bart,
        "self_attn": bart,
        "q_proj": bart,
        "k_proj": bart,
        "v_proj": bart,
        "out_proj": bart,
        "shift_tokens_right": modeling_bart,
        "position_embeddings": bert,
        "BertForMaskedLM": hf,
        "[CLS]": [first],
        "relative_attention_bias": t5,
        "scaling": (set(vars(llama)), "scaling"),
        "num_key_value_heads": hf.LlamaConfig(),
        "sliding_window": hf.MistralConfig(),
        "global_attention_mask": hf.LongformerModel.forward,
        "generate(num_beams=...)": (writes, "num_beams"),
        "generate(do_sample=False)": (writes, "do_sample"),
        "generate(temperature=...)": (writes, "temperature"),
        "decoder_start_token_id": writes,
        "bos_token": special,
        "eos_token": special,
        "pad_token": special,
    }
    return {
        (library, name): owner if isinstance(owner, tuple) else (owner, name)
        for library, table in zip(INSTALLED, (of_torch, of_hf), strict=True)
        for name, owner in table.items()
    }


def test_every_name_of_an_installed_library_in_the_glossary_has_its_place():
    assert names_of(GLOSSARY.read_text()) == set(places())


def test_every_name_is_there_in_the_pinned_release():
    missing = [key for key, (owner, name) in places().items() if not has(owner, name)]
    assert not missing, f"the glossary names what the installed libraries don't have: {missing}"


def test_a_name_is_read_with_its_library():
    text = (
        "Elsewhere: `a(b=1)`, `c` in `D` (PyTorch), `e` (T5 in Hugging Face), `F` (Keras). More: "
    )
    assert names_of(text) == {
        ("PyTorch", "a(b=1)"),
        ("PyTorch", "c"),
        ("PyTorch", "D"),
        ("Hugging Face", "e"),
    }


def test_a_made_up_name_is_missed_wherever_it_is_looked_for():
    found = [key for key, (owner, _) in places().items() if has(owner, "attends_to_nothing")]
    assert not found


def test_the_name_that_the_cache_had_is_gone_from_its_place():
    owner, _ = places()["Hugging Face", "cache"]
    assert not has(owner, "past_key_values")
