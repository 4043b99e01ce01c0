"""Positions inside attention: against Hugging Face, against loops, and token by token."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from parity import assert_same, gradients, leaves
from torch.testing import assert_close
from transformers import T5Config, XLNetConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert
from transformers.models.xlnet.modeling_xlnet import XLNetModel

from attnlib.functional import attention, fused_attention
from attnlib.layers import MultiHeadAttention
from attnlib.masks import causal_mask
from attnlib.positions import (
    Alibi,
    Positions,
    Rope,
    SegmentMemory,
    ShawRelative,
    T5Bias,
    TransformerXL,
    relative_position,
)

BATCH, HEADS, KEY_HEADS, Q_LEN, K_LEN, D_HEAD, D_MODEL = 2, 6, 3, 5, 11, 14, 17
MAKE = {
    "ALiBi": lambda: Alibi(HEADS),
    "T5": lambda: T5Bias(HEADS, n_buckets=8, max_distance=7),
    "T5 decoder": lambda: T5Bias(HEADS, n_buckets=8, max_distance=7, bidirectional=False),
    "Shaw": lambda: ShawRelative(D_HEAD, max_distance=3),
    "Transformer-XL": lambda: TransformerXL(D_MODEL, HEADS, d_head=D_HEAD),
}
LEARNED = [name for name in MAKE if name != "ALiBi"]
EACH = pytest.mark.parametrize("name", MAKE)


def make(name, dtype=torch.float64):
    """One of them, its parameters large enough to matter."""
    positions = MAKE[name]().to(dtype)
    for parameter in positions.parameters():
        torch.nn.init.normal_(parameter)
    return positions


def heads(length, n_heads=HEADS, dtype=torch.float64):
    return torch.randn(BATCH, n_heads, length, D_HEAD, dtype=dtype)


# -------------------------------------------------------------------------------- by hand


def test_relative_position_by_hand():
    assert relative_position(3).tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    assert relative_position(2, 4).tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]
    assert relative_position(1, 3).tolist() == [[-2, -1, 0]]


def test_the_slopes_are_the_published_ones():
    assert Alibi(8).slopes == tuple(1 / 2**h for h in range(1, 9))  # section 3: 1/2 ... 1/256
    assert Alibi(16).slopes == pytest.approx([2 ** (-h / 2) for h in range(1, 17)])
    twelve = [1 / 2**h for h in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    assert Alibi(12).slopes == pytest.approx(twelve)
    assert Alibi(1).slopes == (1 / 256,)


def test_alibi_by_hand():
    bias = Alibi(8).bias(torch.zeros(1, 8, 2, 1), torch.zeros(1, 8, 3, 1))
    assert bias.shape == (1, 8, 2, 3)
    assert bias[0, 1].tolist() == [[-0.25, 0.0, -0.25], [-0.5, -0.25, 0.0]]


def test_t5_buckets_by_hand():
    both = T5Bias(1, n_buckets=8, max_distance=16).bucket
    # 0 and 1 have a bucket each, 2 to 5 share one, then all the rest
    assert both(torch.tensor([0, -1, -2, -5, -6, -16, -99])).tolist() == [0, 1, 2, 2, 3, 3, 3]
    assert both(torch.tensor([1, 2, 5, 6, 16, 99])).tolist() == [5, 6, 6, 7, 7, 7]
    past = T5Bias(1, n_buckets=4, max_distance=8, bidirectional=False).bucket
    assert past(torch.tensor([9, 1, 0, -1, -2, -3, -4, -9])).tolist() == [0, 0, 0, 1, 2, 2, 3, 3]


# ---------------------------------------------------------------------------------- parity


@pytest.mark.parametrize("n_heads", [1, 2, 3, 7, 8, 12, 13])
def test_alibi_weighs_as_bloom_does(n_heads):
    query, key = torch.randn(2, BATCH, n_heads, K_LEN, D_HEAD)
    mask = causal_mask(K_LEN)
    theirs = build_alibi_tensor(torch.ones(BATCH, K_LEN), n_heads, torch.float32)
    theirs = theirs.unflatten(0, (BATCH, n_heads))  # (B, H, 1, L): softmax takes away what is equal
    expected = attention(query, key, key, mask=mask, bias=theirs)[1]
    got = attention(query, key, key, mask=mask, bias=Alibi(n_heads).bias(query, key))[1]
    assert_close(got, expected, atol=1e-6, rtol=0)  # 50 seeds, worst 1.8e-7


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (6, 97), (10, 6)])
def test_t5_is_hugging_faces_forward_and_gradient(is_decoder, n_buckets, max_distance):
    config = T5Config(
        d_model=HEADS * D_HEAD,
        num_heads=HEADS,
        relative_attention_num_buckets=n_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=is_decoder,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    table = theirs.relative_attention_bias.weight
    torch.nn.init.normal_(table)
    ours = T5Bias(HEADS, n_buckets, max_distance, bidirectional=not is_decoder).double()
    ours.table.data.copy_(table.data)

    distances = torch.arange(-1000, 1001)
    bucket = T5Attention._relative_position_bucket(
        distances, not is_decoder, n_buckets, max_distance
    )
    assert torch.equal(ours.bucket(distances), bucket)
    for q_len in (Q_LEN, K_LEN, 1):  # with a cache, then whole, then one token
        x, keys = heads(q_len), heads(K_LEN)
        expected = theirs.compute_bias(q_len, K_LEN, past_seen_tokens=K_LEN - q_len)
        assert_same(ours.bias(x, keys), expected, [ours.table], [table])
        assert torch.equal(ours.between(q_len, K_LEN), ours.bias(x, keys))


def test_shaw_is_wav2vec2_berts_relative_key():
    ours, query, keys = make("Shaw"), heads(K_LEN), heads(K_LEN)
    embedding = torch.nn.Embedding(*ours.vectors.shape).double()
    embedding.weight.data.copy_(ours.vectors.data)
    theirs = SimpleNamespace(
        left_max_position_embeddings=ours.max_distance,
        right_max_position_embeddings=ours.max_distance,
        distance_embedding=embedding,
        scaling=D_HEAD**-0.5,
    )
    our_query, their_query = leaves(query)[0], leaves(query)[0]
    _, expected = modeling_wav2vec2_bert._apply_relative_key_position_encoding(
        theirs, their_query, keys
    )
    our_leaves, their_leaves = [our_query, ours.vectors], [their_query, embedding.weight]
    assert_same(ours.bias(our_query, keys), expected, our_leaves, their_leaves)


@pytest.mark.parametrize("q_len", [1, Q_LEN, K_LEN])
def test_transformer_xl_weighs_as_xlnet_does(q_len):
    d_model = HEADS * D_HEAD
    xlnet = XLNetModel(XLNetConfig(vocab_size=2, d_model=d_model, n_layer=1, n_head=HEADS))
    theirs = xlnet.layer[0].rel_attn.eval()
    ours = TransformerXL(d_model, HEADS)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    by_head = ours.to_distance.weight.data.T.unflatten(1, (HEADS, D_HEAD))
    theirs.r.data.copy_(torch.cat([by_head[0::2], by_head[1::2]]))  # sines before cosines
    theirs.r_w_bias.data.copy_(ours.u.data)
    theirs.r_r_bias.data.copy_(ours.v.data)

    query, key = heads(q_len, dtype=torch.float32), heads(K_LEN, dtype=torch.float32)
    distances = xlnet.relative_positional_encoding(q_len, K_LEN, bsz=BATCH)
    r = torch.einsum("ibh,hnd->ibnd", distances, theirs.r)
    q, k = (x.permute(2, 0, 1, 3) for x in (query, key))  # (length, B, H, Dh)
    expected = theirs.rel_attn_core(q, k, k, r, output_attentions=True)[1].permute(2, 3, 0, 1)
    got = attention(query, key, key, bias=ours.bias(query, key))[1]
    assert_close(got, expected, atol=3e-6, rtol=0)  # 30 seeds, worst 6e-7


@pytest.mark.parametrize("key_heads", [HEADS, KEY_HEADS, 1])
def test_transformer_xl_is_the_papers_sum_forward_and_gradient(key_heads):
    ours = make("Transformer-XL")
    query, key = leaves(heads(Q_LEN), heads(K_LEN, key_heads))
    theirs = copy.deepcopy(ours)
    their_query, their_key = leaves(query, key)
    rows = []
    for b in range(BATCH):
        for h in range(HEADS):
            weight = theirs.to_distance.weight[h * D_HEAD : (h + 1) * D_HEAD]
            for i in range(Q_LEN):
                for j in range(K_LEN):
                    distance = K_LEN - Q_LEN + i - j
                    waves = []
                    for n in range(D_MODEL):
                        angle = distance / 10000 ** (2 * (n // 2) / D_MODEL)
                        waves.append(math.cos(angle) if n % 2 else math.sin(angle))
                    r = weight @ torch.tensor(waves, dtype=torch.float64)
                    k = their_key[b, h * key_heads // HEADS, j]
                    rows.append(theirs.u[h] @ k + (their_query[b, h, i] + theirs.v[h]) @ r)
    expected = torch.stack(rows).view(BATCH, HEADS, Q_LEN, K_LEN) / math.sqrt(D_HEAD)
    our_leaves = [query, key, *ours.parameters()]
    their_leaves = [their_query, their_key, *theirs.parameters()]
    assert_same(ours.bias(query, key), expected, our_leaves, their_leaves)


def test_shaw_is_the_papers_sum_with_more_keys_than_queries():
    ours, query, key = make("Shaw"), heads(Q_LEN), heads(K_LEN, KEY_HEADS)
    bias = ours.bias(query, key)
    for i in range(Q_LEN):
        for j in range(K_LEN):
            clipped = max(-3, min(3, j - (K_LEN - Q_LEN + i)))
            expected = query[:, :, i] @ ours.vectors[clipped + 3] / math.sqrt(D_HEAD)
            assert_close(bias[:, :, i, j], expected)


# -------------------------------------------------------------------------------- property


def test_the_base_does_nothing():
    x = heads(Q_LEN)
    assert Positions().rotate(x, 3) is x
    assert Positions().bias(x, heads(K_LEN)) is None


@EACH
def test_only_the_rotary_ones_rotate(name):
    x = heads(Q_LEN)
    assert make(name).rotate(x, 3) is x


@EACH
@pytest.mark.parametrize("q_len", [1, Q_LEN, K_LEN - 1])
def test_with_more_keys_than_queries_the_queries_are_the_last(name, q_len):
    positions, query, key = make(name), heads(K_LEN), heads(K_LEN, KEY_HEADS)
    whole = positions.bias(query, key)
    last = positions.bias(query[:, :, -q_len:], key)
    assert last.shape[-2:] == (q_len, K_LEN)
    assert_close(last, whole[:, :, -q_len:])


@EACH
def test_only_the_distance_counts(name):
    positions = make(name)
    query, key = (heads(1).expand(-1, -1, K_LEN, -1) for _ in range(2))  # all tokens alike
    bias = positions.bias(query, key)
    assert_close(bias[..., 1:, 1:], bias[..., :-1, :-1])
    assert (bias[..., 0] - bias[..., 1]).abs().max() > 0.01  # but it does count


@EACH
def test_direction_counts_unless_the_docstring_says_otherwise(name):
    positions = make(name)
    query, key = (heads(1).expand(-1, -1, 4, -1) for _ in range(2))
    bias = positions.bias(query, key)
    same = torch.allclose(bias, bias.mT)
    assert same == (name == "ALiBi")


def test_a_t5_decoder_does_not_tell_later_keys_apart():
    positions = make("T5 decoder")
    bias = positions.bias(heads(K_LEN), heads(K_LEN))[0]
    assert torch.equal(bias[:, 0, 1:], bias[:, 0, :1].expand(-1, K_LEN - 1))


@pytest.mark.parametrize("name", [*MAKE, "RoPE"])
@pytest.mark.parametrize("split", range(1, K_LEN))
def test_token_by_token_with_a_cache_equals_all_at_once(name, split):
    positions = Rope(D_HEAD) if name == "RoPE" else make(name)
    query, key, value = (heads(K_LEN) for _ in range(3))

    def attend(first, cached_keys):
        """Attend from token ``first`` on, or up to there if nothing is cached."""
        new = slice(first, first + 1) if first else slice(0, split)
        q = positions.rotate(query[:, :, new], first)
        k = torch.cat([cached_keys, positions.rotate(key[:, :, new], first)], dim=2)
        mask, bias = causal_mask(q.shape[2], k.shape[2]), positions.bias(q, k)
        return attention(q, k, value[:, :, : k.shape[2]], mask=mask, bias=bias)[0], k

    output, keys = attend(0, key[:, :, :0])
    outputs = [output]
    for token in range(split, K_LEN):
        output, keys = attend(token, keys)
        outputs.append(output)
    q, k = positions.rotate(query), positions.rotate(key)
    mask, bias = causal_mask(K_LEN), positions.bias(q, k)
    assert_close(torch.cat(outputs, dim=2), attention(q, k, value, mask=mask, bias=bias)[0])


@EACH
def test_the_fused_twin_takes_the_bias(name):
    positions, query, key = make(name), heads(K_LEN), heads(K_LEN)
    mask, bias = causal_mask(K_LEN), positions.bias(query, key)
    fused = fused_attention(query, key, key, mask=mask, bias=bias)
    assert_close(fused, attention(query, key, key, mask=mask, bias=bias)[0])
    assert not torch.allclose(fused, fused_attention(query, key, key, mask=mask))


@pytest.mark.parametrize("name", LEARNED)
def test_every_parameter_learns_but_the_bucket_that_no_distance_reaches(name):
    positions = make(name)
    positions.bias(heads(K_LEN), heads(K_LEN)).square().sum().backward()
    for gradient in gradients(positions).values():
        # T5's bucket 4 would be for a later key at distance 0
        expected = [True] * 4 + [False] + [True] * 3 if name == "T5" else [True] * len(gradient)
        assert gradient.any(-1).tolist() == expected


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_close_and_keeps_its_dtype(name, dtype):
    positions, query, key = make(name, dtype), heads(Q_LEN, dtype=dtype), heads(K_LEN, dtype=dtype)
    bias = positions.bias(query, key)
    assert bias.dtype == dtype
    expected = copy.deepcopy(positions).double().bias(query.double(), key.double())
    unit = torch.finfo(dtype).eps * expected.abs().max().item()
    assert_close(bias.double(), expected, atol=4 * unit, rtol=0)  # 50 seeds, worst 2.5 units


def test_the_slopes_of_alibi_are_not_rounded_with_the_module():
    x = torch.zeros(1, 12, 300, 1, dtype=torch.bfloat16)
    exact = Alibi(12).bias(x.double(), x.double())
    assert torch.equal(Alibi(12).bfloat16().bias(x, x), exact.float().bfloat16())


@EACH
def test_autocast_gives_the_dtype_of_the_queries(name):
    positions, query = make(name, torch.float32), heads(Q_LEN, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        bias = positions.bias(query, query)
    assert bias.dtype == torch.bfloat16
    expected = positions.bias(query.float(), query.float())
    unit = torch.finfo(torch.bfloat16).eps * expected.abs().max().item()
    assert_close(bias.float(), expected, atol=2 * unit, rtol=0)  # 50 seeds, worst 1.1 units


@EACH
def test_a_copy_and_loaded_weights_do_the_same(name):
    positions, query, key = make(name), heads(Q_LEN), heads(K_LEN)
    other = make(name)
    other.load_state_dict(positions.state_dict())
    expected = positions.bias(query, key)
    assert torch.equal(copy.deepcopy(positions).bias(query, key), expected)
    assert torch.equal(other.bias(query, key), expected)
    assert len(positions.state_dict()) == len(list(positions.parameters()))


@pytest.mark.compiles
@EACH
@pytest.mark.parametrize("dynamic", [False, True])
def test_it_compiles_whole(name, dynamic):
    positions = make(name)
    compiled = torch.compile(positions.bias, fullgraph=True, backend="eager", dynamic=dynamic)
    for q_len, k_len in [(Q_LEN, Q_LEN), (Q_LEN, K_LEN)]:
        query, key = heads(q_len), heads(k_len)
        assert_close(compiled(query, key), positions.bias(query, key))


@EACH
def test_its_picture_shows_its_sizes(name):
    expected = {
        "ALiBi": "Alibi(n_heads=6)",
        "T5": "T5Bias(n_heads=6, n_buckets=8, max_distance=7, bidirectional=True)",
        "T5 decoder": "T5Bias(n_heads=6, n_buckets=8, max_distance=7, bidirectional=False)",
        "Shaw": "ShawRelative(d_head=14, max_distance=3)",
    }
    if name in expected:
        assert repr(make(name)) == expected[name]
    else:
        assert "d_model=17, n_heads=6, d_head=14" in repr(make(name))


# ---------------------------------------------------------------------------------- memory


def test_the_memory_puts_the_last_states_before_the_new():
    memory, text = SegmentMemory(memory_len=4), torch.randn(BATCH, 9, D_MODEL)
    assert torch.equal(memory.extend(text[:, :3]), text[:, :3])
    assert torch.equal(memory.extend(text[:, 3:6]), text[:, :6])
    assert torch.equal(memory.extend(text[:, 6:]), text[:, 2:])
    assert torch.equal(memory.states, text[:, 5:])


def test_a_memory_longer_than_a_segment_keeps_several_and_a_shorter_one_its_end():
    text = torch.randn(BATCH, 6, D_MODEL)
    long, short = SegmentMemory(5), SegmentMemory(1)
    for segment in text.split(2, dim=1):
        long.extend(segment)
        short.extend(segment)
    assert torch.equal(long.states, text[:, 1:])
    assert torch.equal(short.states, text[:, 5:])


def test_no_gradient_flows_into_the_past():
    memory, (first, second) = SegmentMemory(4), leaves(*torch.randn(2, BATCH, 3, D_MODEL))
    memory.extend(first)
    memory.extend(second).sum().backward()
    assert first.grad is None
    assert (second.grad == 1).all()


def test_what_is_remembered_is_a_copy():
    memory, x = SegmentMemory(4), torch.zeros(BATCH, 3, D_MODEL)
    memory.extend(x).add_(1.0)
    assert not memory.states.any()


def test_after_a_reset_nothing_is_remembered():
    memory, x = SegmentMemory(4), torch.randn(BATCH, 3, D_MODEL)
    memory.extend(x)
    memory.reset()
    other = torch.randn(BATCH + 1, 3, D_MODEL)  # another batch
    assert torch.equal(memory.extend(other), other)


@EACH
def test_segment_by_segment_with_a_long_memory_equals_the_whole_text(name):
    layer = MultiHeadAttention(D_MODEL, HEADS, d_head=D_HEAD, positions=make(name)).double()
    text = torch.randn(BATCH, 9, D_MODEL, dtype=torch.float64)

    def read(memory):
        outputs = []
        for segment in text.split(3, dim=1):
            extended = memory.extend(segment)
            mask = causal_mask(3, extended.shape[1])
            outputs.append(layer(segment, extended, mask=mask))
        return torch.cat(outputs, dim=1)

    whole = layer(text, mask=causal_mask(9))
    assert_close(read(SegmentMemory(memory_len=6)), whole)
    assert not torch.allclose(read(SegmentMemory(memory_len=2)), whole)


# --------------------------------------------------------------------------------- refusal

Q, K = torch.ones(1, 6, 3, 14), torch.ones(1, 6, 5, 14)
ALIBI, T5, SHAW, XL = (MAKE[name]() for name in ("ALiBi", "T5", "Shaw", "Transformer-XL"))
FULL = SegmentMemory(4)
FULL.extend(torch.ones(2, 3, 5))
REFUSED = {
    "too few keys": (lambda: relative_position(3, 2), ValueError, "k_len=2, q_len=3.*cross-att"),
    "no queries": (lambda: relative_position(0, 2), ValueError, "q_len must be 1 or more, got 0"),
    "a tensor": (lambda: relative_position(torch.tensor(3)), TypeError, "q_len .* got Tensor"),
    "no heads": (lambda: Alibi(0), ValueError, "n_heads must be 1 or more, got 0"),
    "half a head": (lambda: Alibi(1.5), TypeError, "n_heads must be a whole number, got float"),
    "alibi heads": (lambda: ALIBI.bias(Q[:, :4], K), ValueError, r"query must be \(batch, 6, le"),
    "alibi 3-D": (lambda: ALIBI.bias(Q[0], K), ValueError, r"got shape \(6, 3, 14\)"),
    "alibi 3-D key": (lambda: ALIBI.bias(Q, K[0]), ValueError, "key must be .batch, heads, length"),
    "alibi keys": (lambda: ALIBI.bias(K, Q), ValueError, "as many keys as queries, got k_len=3"),
    "alibi list": (lambda: ALIBI.bias([1.0], K), TypeError, "query must be a float tensor, got li"),
    "t5 heads": (lambda: T5.bias(Q[:, :4], K), ValueError, r"query must be \(batch, 6, length, d_"),
    "t5 integers": (lambda: T5.bias(Q, K.int()), TypeError, "key must be .* got torch.int32"),
    "t5 keys": (lambda: T5.bias(K, Q), ValueError, "as many keys as queries, got k_len=3"),
    "t5 buckets": (lambda: T5Bias(6, 3), ValueError, "n_buckets must be 4 or more.*n_buckets=3,"),
    "t5 few": (lambda: T5Bias(6, 1, bidirectional=False), ValueError, "n_buckets must be 2 or mo"),
    "t5 near": (lambda: T5Bias(6, 32, 8), ValueError, "max_distance above .* max_distance=8"),
    "t5 float": (lambda: T5Bias(6, 32, 8.0), TypeError, "max_distance must be a whole .* float"),
    "shaw width": (lambda: SHAW.bias(Q[..., :7], K), ValueError, r"query must be .* length, 14\),"),
    "shaw key": (lambda: SHAW.bias(Q, K[..., :7]), ValueError, r"key must be .* length, 14\), got"),
    "shaw keys": (lambda: SHAW.bias(K, Q), ValueError, "as many keys as queries, got k_len=3"),
    "shaw dtype": (lambda: SHAW.bias(Q.double(), K.double()), TypeError, "query is torch.float64"),
    "shaw device": (lambda: SHAW.bias(Q.to("meta"), K.to("meta")), ValueError, "query is on meta"),
    "no distance": (lambda: ShawRelative(4, 0), ValueError, "max_distance must be 1 or more"),
    "no width": (lambda: ShawRelative(0), ValueError, "d_head must be 1 or more, got 0"),
    "xl share": (lambda: TransformerXL(17, 6), ValueError, "17 is no multiple of n_heads=6"),
    "xl width": (lambda: TransformerXL(0, 6), ValueError, "d_model must be 1 or more, got 0"),
    "xl d_head": (lambda: TransformerXL(8, 2, d_head=0), ValueError, "d_head must be 1 or more"),
    "xl heads": (lambda: XL.bias(Q[:, :4], K), ValueError, r"query must be \(batch, 6, length, 14"),
    "xl key": (lambda: XL.bias(Q, K[..., :7]), ValueError, "key must be .batch, heads, length, 14"),
    "xl groups": (lambda: XL.bias(Q, K[:, :4]), ValueError, "heads, 6, must be a multiple .* 4"),
    "xl keys": (lambda: XL.bias(K, Q), ValueError, "as many keys as queries, got k_len=3"),
    "xl dtype": (lambda: XL.bias(Q.half(), K.half()), TypeError, "the positions are torch.float32"),
    "xl device": (lambda: XL.bias(Q.to("meta"), K.to("meta")), ValueError, "positions are on cpu"),
    "memory": (lambda: SegmentMemory(0), ValueError, "memory_len must be 1 or more, got 0"),
    "memory 2-D": (lambda: FULL.extend(torch.ones(3, 5)), ValueError, r"3-D .* got shape \(3, 5\)"),
    "other batch": (lambda: FULL.extend(torch.ones(1, 3, 5)), ValueError, r"was \(2, 5.*reset\(\)"),
    "other width": (lambda: FULL.extend(torch.ones(2, 3, 7)), ValueError, r"now \(2, 7"),
    "other dtype": (lambda: FULL.extend(torch.ones(2, 3, 5).half()), ValueError, "now .*float16"),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()
