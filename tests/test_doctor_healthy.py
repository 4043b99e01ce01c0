"""The doctor on what others wrote and test well, and on attnlib itself: nothing to complain of."""

import pytest
import torch
from torch import nn

from attnlib.doctor import assert_cache_consistent, assert_healthy, examine
from attnlib.functional import attention
from attnlib.layers import DecoderLayer, EncoderLayer, MultiHeadAttention
from attnlib.masks import causal_mask
from attnlib.models.bert import Bert, BertConfig
from attnlib.models.gpt import GPT, GPTConfig

D, HEADS, VOCAB = 12, 2, 50
X, MEMORY = torch.randn(2, 5, D), torch.randn(2, 7, D)
KEEP = torch.ones(2, 5, dtype=torch.bool)
TOKENS = torch.randint(5, VOCAB, (2, 6))
ONES = torch.ones(2, 6, dtype=torch.long)
BOTH_WAYS = {"causal": False, "n_heads": HEADS}


# ------------------------------------------------------------------ PyTorch


def test_pytorchs_attention():
    layer = nn.MultiheadAttention(D, HEADS, batch_first=True)
    assert_healthy(layer, X, X, X, weights={"need_weights": True}, **BOTH_WAYS)
    assert_healthy(layer, X, X, X, kwargs={"key_padding_mask": ~KEEP}, **BOTH_WAYS)
    assert_healthy(layer, X, MEMORY, MEMORY, **BOTH_WAYS)


def test_pytorchs_attention_with_the_sequence_first():
    layer, x = nn.MultiheadAttention(D, HEADS), X.transpose(0, 1)
    assert_healthy(layer, x, x, x, batch_first=False, **BOTH_WAYS)
    wrong = examine(layer, x, x, x, **BOTH_WAYS)
    assert wrong.causes >= {"attends-over-batch"}


def test_pytorchs_encoder_and_decoder():
    layer = nn.TransformerEncoderLayer(D, HEADS, 20, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    assert_healthy(encoder, X, kwargs={"src_key_padding_mask": ~KEEP}, **BOTH_WAYS)
    two = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert examine(two, X, **BOTH_WAYS).causes == {"layers-identical"}  # as PyTorch documents
    decoder = nn.TransformerDecoderLayer(D, HEADS, 20, batch_first=True)
    mask = {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(5)}
    assert_healthy(decoder, X, MEMORY, kwargs=mask, causal=True, n_heads=HEADS)


def test_pytorchs_fused_function():
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)
    assert_healthy(nn.functional.scaled_dot_product_attention, q, k, k.clone(), causal=False)

    def causal(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    assert_healthy(causal, q, q.clone(), q.clone(), causal=True)
    report = examine(
        nn.functional.scaled_dot_product_attention, q, q.clone(), q.clone(), causal=True
    )
    assert report.causes == {"future-leak"}


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Linear(D, D), X),
        (nn.LayerNorm(D), X),
        (nn.Embedding(VOCAB, D), TOKENS),
        (nn.GRU(D, D, batch_first=True), X),
        (nn.BatchNorm1d(5), X),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_layer_without_attention_and_without_promises(module, x):
    assert_healthy(module, x)


# ------------------------------------------------------------------ Hugging Face


def bert(kind):
    from transformers import BertConfig, BertModel

    sizes = {"vocab_size": VOCAB, "hidden_size": D, "num_attention_heads": HEADS}
    sizes |= {"num_hidden_layers": 2, "intermediate_size": 20, "max_position_embeddings": 40}
    return BertModel(BertConfig(**sizes, attn_implementation=kind))


def gpt2(kind):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": VOCAB, "n_embd": D, "n_layer": 2, "n_head": HEADS, "n_positions": 40}
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ends, attn_implementation=kind))


@pytest.mark.parametrize("kind", ["eager", "sdpa"])
def test_hugging_faces_models(kind):
    mask = {"attention_mask": ONES}
    assert_healthy(bert(kind), TOKENS, kwargs=mask, order_matters=True, **BOTH_WAYS)
    assert_healthy(gpt2(kind), TOKENS, kwargs=mask, order_matters=True, causal=True, n_heads=HEADS)


def test_hugging_faces_cache():
    def step(model, chunk, cache):
        output = model(chunk, cache=cache, use_cache=True)
        return output.logits, output.cache

    assert_cache_consistent(gpt2("sdpa"), TOKENS, cache=step, causal=True)


# ------------------------------------------------------------------ our own


def test_our_layers():
    assert_healthy(MultiHeadAttention(D, HEADS), X, **BOTH_WAYS)
    assert_healthy(MultiHeadAttention(D, HEADS), X, MEMORY, **BOTH_WAYS)
    assert_healthy(EncoderLayer(D, n_heads=HEADS, d_ff=20), X, **BOTH_WAYS)
    decoder, mask = DecoderLayer(D, n_heads=HEADS, d_ff=20), {"mask": causal_mask(5)}
    assert_healthy(decoder, X, MEMORY, kwargs=mask, causal=True, n_heads=HEADS)


def test_our_models():
    sizes = {"vocab_size": VOCAB, "d_model": D, "n_heads": HEADS, "n_layers": 2, "max_len": 40}
    sizes["d_ff"] = 20
    assert_healthy(Bert(BertConfig(**sizes)), TOKENS, order_matters=True, **BOTH_WAYS)
    gpt = GPT(GPTConfig(**sizes))
    assert_healthy(gpt, TOKENS, order_matters=True, causal=True, n_heads=HEADS)


def test_our_function():
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)
    assert_healthy(lambda q, k, v: attention(q, k, v)[0], q, k, k.clone(), causal=False)
