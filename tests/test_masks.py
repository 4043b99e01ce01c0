"""Masks are compared with drawings: x = may attend, one word for each query."""

import pytest
import torch
from pictures import drawn

from attnlib.masks import (
    causal_mask,
    check_mask,
    document_mask,
    from_additive,
    from_attention_mask,
    from_key_padding_mask,
    from_torch_attn_mask,
    global_mask,
    left_padding_mask,
    padding_mask,
    prefix_mask,
    random_block_mask,
    receptive_field,
    to_additive,
    to_attention_mask,
    to_key_padding_mask,
    to_torch_attn_mask,
    window_mask,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def assert_drawn(mask, *pictures):
    """The mask has one head, and looks like one picture for each sequence."""
    assert mask.dtype == torch.bool
    assert torch.equal(mask, torch.stack([drawn(p) for p in pictures])[:, None])


# ---------------------------------------------------------------------------------- builders


@pytest.mark.parametrize(
    ("q_len", "k_len", "picture"),
    [
        (1, 1, "x"),
        (3, 3, "x.. xx. xxx"),
        (5, 5, "x.... xx... xxx.. xxxx. xxxxx"),
        (1, 3, "xxx"),  # one new query after two cached keys
        (2, 4, "xxx. xxxx"),
        (3, 7, "xxxxx.. xxxxxx. xxxxxxx"),
    ],
)
def test_a_causal_mask_shows_a_query_itself_and_the_past(q_len, k_len, picture):
    assert_drawn(causal_mask(q_len, k_len), picture)


@pytest.mark.parametrize(
    ("q_len", "k_len", "radius", "dilation", "picture"),
    [
        (4, 4, 0, 1, "x... .x.. ..x. ...x"),
        (5, 5, 1, 1, "xx... xxx.. .xxx. ..xxx ...xx"),
        (5, 5, 3, 1, "xxxx. xxxxx xxxxx xxxxx .xxxx"),
        (5, 5, 1, 2, "x.x.. .x.x. x.x.x .x.x. ..x.x"),
        (7, 7, 2, 3, "x..x..x .x..x.. ..x..x. x..x..x .x..x.. ..x..x. x..x..x"),
        (2, 5, 1, 1, "..xxx ...xx"),
        (3, 7, 2, 2, "x.x.x.x .x.x.x. ..x.x.x"),
    ],
)
def test_a_window_mask_shows_the_keys_nearby(q_len, k_len, radius, dilation, picture):
    assert_drawn(window_mask(q_len, k_len, radius=radius, dilation=dilation), picture)


@pytest.mark.parametrize("build", [causal_mask, lambda *n: window_mask(*n, radius=1)])
def test_there_are_as_many_keys_as_queries_unless_told(build):
    assert torch.equal(build(5), build(5, 5))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_a_padding_mask_hides_the_end(dtype):
    lengths = torch.tensor([3, 0, 5], dtype=dtype)
    assert_drawn(padding_mask(lengths, 5), "xxx..", ".....", "xxxxx")


def test_a_left_padding_mask_hides_the_start():
    lengths = torch.tensor([3, 0, 5])
    assert_drawn(left_padding_mask(lengths, 5), "..xxx", ".....", "xxxxx")


def test_lengths_of_a_small_type_can_pad_a_long_sequence():
    mask = padding_mask(torch.tensor([100, 3], dtype=torch.int8), 300)
    assert mask.sum(-1).flatten().tolist() == [100, 3]


GLOBAL = torch.tensor([[True, False, True, False, False], [False] * 5])


def test_a_global_mask_shows_a_global_token_to_all_and_all_to_it():
    first = "xxxxx x.x.. xxxxx x.x.. x.x.."
    assert_drawn(global_mask(GLOBAL), first, "..... ..... ..... ..... .....")


def test_a_global_mask_for_the_last_queries_only():
    assert_drawn(global_mask(GLOBAL, 3), "xxxxx x.x.. x.x..", "..... ..... .....")


def test_a_prefix_mask_is_causal_after_the_prefix():
    mask = prefix_mask(torch.tensor([0, 2, 4]), 4)
    assert_drawn(mask, "x... xx.. xxx. xxxx", "xx.. xx.. xxx. xxxx", "xxxx xxxx xxxx xxxx")


def test_a_prefix_mask_for_the_last_queries_only():
    mask = prefix_mask(torch.tensor([1, 5]), 3, 5)
    assert_drawn(mask, "xxx.. xxxx. xxxxx", "xxxxx xxxxx xxxxx")


DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1], [7, 5, 7, 7, 5]])


def test_a_document_mask_keeps_documents_apart():
    assert_drawn(
        document_mask(DOCUMENTS),
        "xx... xx... ..xxx ..xxx ..xxx",
        "x.xx. .x..x x.xx. x.xx. .x..x",
    )


def test_a_document_mask_for_the_last_queries_only():
    assert_drawn(document_mask(DOCUMENTS, 2), "..xxx ..xxx", "x.xx. .x..x")


def test_what_a_token_has_heard_of_grows_layer_by_layer():
    before = drawn("... x.. .x.")[None, None]  # each sees only the one before, not itself
    assert receptive_field(before, 0)[0, 0].equal(drawn("x.. .x. ..x"))
    assert receptive_field(before, 1)[0, 0].equal(drawn("x.. xx. .xx"))
    assert receptive_field(before, 2)[0, 0].equal(drawn("x.. xx. xxx"))
    window = window_mask(40, radius=2).repeat(2, 1, 1, 1)
    assert receptive_field(window, 5).equal(window_mask(40, radius=10).repeat(2, 1, 1, 1))
    one_for_all = window | global_mask(torch.arange(40)[None] == 7)
    assert not receptive_field(one_for_all, 1).all()
    assert receptive_field(one_for_all, 2).all()


@pytest.mark.messages
def test_a_receptive_field_needs_as_many_queries_as_keys():
    with pytest.raises(
        ValueError, match=r"as many queries as keys, got mask of shape \(1, 1, 2, 3"
    ):
        receptive_field(causal_mask(2, 3), 2)
    with pytest.raises(ValueError, match="n_layers must be 0 or more, got -1"):
        receptive_field(causal_mask(2), -1)


def test_masks_combine():
    padding = padding_mask(torch.tensor([4, 2]), 4)
    assert_drawn(causal_mask(4) & padding, "x... xx.. xxx. xxxx", "x... xx.. xx.. xx..")
    assert_drawn(
        window_mask(5, radius=1) | global_mask(torch.tensor([[True] + [False] * 4])),
        "xxxxx xxx.. xxxx. x.xxx x..xx",
    )
    assert_drawn(window_mask(4, radius=1) & causal_mask(4), "x... xx.. .xx. ..xx")


# ------------------------------------------------------------------------- random block mask


@pytest.mark.parametrize("n_blocks", [1, 2, 3])
def test_a_random_block_mask_shows_each_block_of_queries_whole_blocks_of_keys(n_blocks):
    mask = random_block_mask(15, block_size=5, n_blocks=n_blocks)
    assert mask.shape == (1, 1, 15, 15)
    blocks = mask[0, 0].unflatten(0, (3, 5)).unflatten(2, (3, 5))  # (3, 5, 3, 5)
    whole = blocks[:, 0, :, 0]
    assert torch.equal(blocks, whole[:, None, :, None].expand(3, 5, 3, 5))
    assert whole.sum(-1).tolist() == [n_blocks] * 3  # as many different ones as asked for


def test_the_last_block_of_a_random_block_mask_may_be_shorter():
    mask = random_block_mask(7, block_size=3, n_blocks=3)
    assert_drawn(mask, " ".join(["xxxxxxx"] * 7))
    draws = [random_block_mask(7, block_size=3, n_blocks=1) for _ in range(50)]
    assert {n for mask in draws for n in mask.sum(-1).flatten().tolist()} == {3, 1}


def test_every_block_of_keys_has_the_same_chance():
    draws = torch.stack([random_block_mask(4, block_size=1, n_blocks=2) for _ in range(2000)])
    share = draws.double().mean(0)[0, 0]
    assert (share - 0.5).abs().max() < 0.06  # 5 standard deviations of 2000 draws


def test_a_generator_repeats_the_draw_and_leaves_the_global_one_alone():
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return random_block_mask(64, block_size=2, n_blocks=3, generator=generator)

    before = torch.get_rng_state()
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))
    assert torch.equal(torch.get_rng_state(), before)


# ------------------------------------------------------------------------------- converters


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_hugging_face_keeps_the_ones(dtype):
    theirs = torch.tensor([[1, 1, 0], [0, 1, 1]]).to(dtype)
    assert_drawn(from_attention_mask(theirs), "xx.", ".xx")


def test_hugging_face_gets_ones_to_keep():
    ours = drawn("xx. .xx")[:, None, None]
    theirs = to_attention_mask(ours)
    assert theirs.dtype == torch.int64
    assert theirs.tolist() == [[1, 1, 0], [0, 1, 1]]


def test_torch_ignores_what_is_true_in_a_key_padding_mask():
    assert_drawn(from_key_padding_mask(torch.tensor([[False, True], [True, False]])), "x.", ".x")


def test_torch_gets_true_to_ignore_in_a_key_padding_mask():
    ours = drawn("xx. .xx")[:, None, None]
    assert to_key_padding_mask(ours).tolist() == [[False, False, True], [True, False, False]]


def test_torch_blocks_what_is_true_in_an_attn_mask():
    assert_drawn(from_torch_attn_mask(drawn(".xx ..x")), "x.. xx.")  # drawn: x = True = blocked


def test_a_3d_attn_mask_has_the_heads_of_a_sequence_side_by_side():
    sequences = [["x..", ".x.", "xx."], ["xxx", "..x", "x.x"]]  # three heads, one query each
    ours = torch.stack([torch.stack([drawn(head) for head in heads]) for heads in sequences])
    blocked = [".xx", "x.x", "..x", "...", "xx.", ".x."]
    theirs = torch.stack([drawn(head) for head in blocked])
    assert torch.equal(from_torch_attn_mask(theirs, n_heads=3), ours)
    assert torch.equal(to_torch_attn_mask(ours, batch=2, n_heads=3), theirs)


def test_an_attn_mask_is_written_out_for_each_sequence_and_head():
    per_sequence = torch.stack([drawn("x. xx"), drawn("xx .x")])[:, None]
    theirs = to_torch_attn_mask(per_sequence, batch=2, n_heads=3)
    assert torch.equal(theirs, torch.stack([drawn(".x ..")] * 3 + [drawn(".. x.")] * 3))
    per_head = torch.stack([drawn("x. xx"), drawn("xx .x")])[None]
    theirs = to_torch_attn_mask(per_head, batch=2, n_heads=2)
    assert torch.equal(theirs, torch.stack([drawn(".x .."), drawn(".. x.")] * 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_additive_mask_is_0_where_allowed_and_minus_infinity_where_not(dtype):
    additive = to_additive(drawn("x. xx")[None, None], dtype)
    assert additive.dtype == dtype
    assert additive.tolist() == [[[[0.0, -torch.inf], [0.0, 0.0]]]]


def test_an_additive_mask_is_float32_unless_told():
    assert to_additive(drawn("x.")).dtype == torch.float32


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_usual_way_to_write_blocked_is_read(dtype):
    blocked = [-1e4, torch.finfo(dtype).min, -torch.inf]
    if torch.finfo(dtype).min < -1e9:
        blocked.append(-1e9)
    additive = torch.tensor([0.0, -0.0, *blocked], dtype=dtype)
    assert from_additive(additive).tolist() == [True, True] + [False] * len(blocked)


# ----------------------------------------------------------------------------------- devices


def test_masks_are_made_where_they_are_asked_for():
    there = torch.device("meta")
    ids = torch.zeros(2, 5, dtype=torch.long, device=there)
    assert causal_mask(5, device=there).device == there
    assert window_mask(5, radius=1, device=there).device == there
    assert document_mask(ids).device == there
    assert global_mask(ids == 0).device == there
    assert to_additive(ids == 0).device == there
    assert padding_mask(ids[:, 0], 5).device == there
    assert prefix_mask(ids[:, 0], 5).device == there


def test_a_mask_is_made_where_its_lengths_are_and_not_where_others_are_made():
    lengths = torch.tensor([1, 3])
    expected = [f(lengths, 4) for f in (padding_mask, left_padding_mask, prefix_mask)]
    with torch.device("meta"):
        found = [f(lengths, 4) for f in (padding_mask, left_padding_mask, prefix_mask)]
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


# -------------------------------------------------------------------- compiled, and under vmap

READERS = {
    "padding_mask": (lambda x: padding_mask(x, 4), torch.tensor([1, 3])),
    "prefix_mask": (lambda x: prefix_mask(x, 4), torch.tensor([1, 3])),
    "from_attention_mask": (from_attention_mask, torch.tensor([[1, 1, 0]])),
    "from_additive": (from_additive, torch.tensor([[0.0, -torch.inf]])),
}


@pytest.mark.compiles
@pytest.mark.parametrize(("build", "x"), READERS.values(), ids=READERS.keys())
def test_what_looks_at_its_input_can_be_compiled_and_mapped(build, x):
    torch.compiler.reset()
    compiled = torch.compile(build, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), build(x))
    mapped = torch.vmap(build)(torch.stack([x, x.flip(-1)]))
    assert torch.equal(mapped, torch.stack([build(x), build(x.flip(-1))]))


def test_the_mask_check_accepts_a_4d_boolean():
    assert check_mask(torch.ones(2, 3, 5, 7, dtype=torch.bool)) is None


# ------------------------------------------------------------------------------------ refusals

ONES = torch.ones(2, 3, dtype=torch.bool)
REFUSED = {
    "no queries": (lambda: causal_mask(0), ValueError, "q_len must be 1 or more, got 0"),
    "negative queries": (lambda: causal_mask(-2), ValueError, "q_len must be 1 or more, got -2"),
    "more queries than keys": (lambda: causal_mask(3, 2), ValueError, "k_len=2, q_len=3: the last"),
    "fractional length": (lambda: causal_mask(2.5), TypeError, "q_len must be a whole number"),
    "a tensor as length": (lambda: causal_mask(ONES), TypeError, "whole number, got Tensor"),
    "negative radius": (lambda: window_mask(3, radius=-1), ValueError, "0 or more, got -1"),
    "no dilation": (lambda: window_mask(3, radius=1, dilation=0), ValueError, "1 or more, got 0"),
    "half a radius": (lambda: window_mask(3, radius=0.5), TypeError, "radius must be a whole"),
    "half a dilation": (lambda: window_mask(3, radius=1, dilation=1.5), TypeError, "dilation must"),
    "window of no queries": (lambda: window_mask(0, radius=1), ValueError, "q_len must be 1"),
    "a list of lengths": (lambda: padding_mask([1, 2], 3), TypeError, "list .*; write torch"),
    "float lengths": (lambda: padding_mask(torch.ones(2), 3), TypeError, "got torch.float32"),
    "boolean lengths": (lambda: padding_mask(ONES[0], 3), TypeError, "got torch.bool"),
    "2-D lengths": (lambda: padding_mask(ONES.long(), 3), ValueError, r"1-D \(batch,\), got shape"),
    "too long": (lambda: padding_mask(torch.tensor([1, 4]), 3), ValueError, r"k_len=3, got \[1, 4"),
    "negative length": (lambda: padding_mask(torch.tensor([-1]), 3), ValueError, r"got \[-1\]"),
    "no keys": (lambda: padding_mask(torch.tensor([0]), 0), ValueError, "k_len must be 1"),
    "left, too long": (lambda: left_padding_mask(torch.tensor([4]), 3), ValueError, "k_len=3"),
    "global as 0/1": (lambda: global_mask(ONES.int()), TypeError, r"convert 0/1 with .bool\(\)"),
    "global 1-D": (lambda: global_mask(ONES[0]), ValueError, r"2-D \(batch, k_len\), got"),
    "global, too many queries": (lambda: global_mask(ONES, 4), ValueError, "k_len=3, q_len=4"),
    "blocks of nothing": (
        lambda: random_block_mask(5, block_size=0, n_blocks=1), ValueError, "block_size must be 1"
    ),
    "no blocks": (
        lambda: random_block_mask(5, block_size=2, n_blocks=0), ValueError, "n_blocks must be 1"
    ),
    "too many blocks": (
        lambda: random_block_mask(5, block_size=2, n_blocks=4), ValueError, "the 3 blocks of 2"
    ),
    "prefix too long": (lambda: prefix_mask(torch.tensor([4]), 3), ValueError, "k_len=3, got"),
    "prefix, few keys": (lambda: prefix_mask(torch.tensor([1]), 3, 2), ValueError, "q_len=3"),
    "float documents": (lambda: document_mask(torch.ones(2, 3)), TypeError, "number the documents"),
    "1-D documents": (lambda: document_mask(torch.ones(3).int()), ValueError, r"2-D \(batch, k"),
    "documents, queries": (lambda: document_mask(ONES.int(), 4), ValueError, "k_len=3, q_len=4"),
    "attention_mask as list": (lambda: from_attention_mask([[1]]), TypeError, "return_tensors="),
    "float attention_mask": (lambda: from_attention_mask(ONES.float()), TypeError, "from_additive"),
    "3-D attention_mask": (lambda: from_attention_mask(ONES[None].int()), ValueError, "be 2-D"),
    "ids as attention_mask": (
        lambda: from_attention_mask(torch.tensor([[101, 7, 0]])), ValueError, "0 to 101; token ids"
    ),
    "negative attention_mask": (
        lambda: from_attention_mask(torch.tensor([[-1, 1]])), ValueError, "-1 to 1"
    ),
    "attention_mask per query": (
        lambda: to_attention_mask(causal_mask(3)), ValueError, "attention_mask holds one row"
    ),
    "attention_mask of ints": (
        lambda: to_attention_mask(causal_mask(3).int()), TypeError, "True = may attend"
    ),
    "key_padding_mask of ints": (
        lambda: from_key_padding_mask(ONES.int()), TypeError, "True = ignore; 1 = keep is read by"
    ),
    "3-D key_padding_mask": (lambda: from_key_padding_mask(ONES[None]), ValueError, "must be 2-D"),
    "key_padding_mask per head": (
        lambda: to_key_padding_mask(torch.ones(2, 3, 1, 5).bool()), ValueError, "differs by query"
    ),
    "float attn_mask": (lambda: from_torch_attn_mask(ONES.float()), TypeError, "from_additive"),
    "attn_mask as list": (lambda: from_torch_attn_mask([[True]]), TypeError, "got list"),
    "1-D attn_mask": (lambda: from_torch_attn_mask(ONES[0]), ValueError, "3-D .* or 2-D"),
    "heads that do not divide": (
        lambda: from_torch_attn_mask(ONES[:, None], n_heads=3), ValueError, "2 is no multiple of"
    ),
    "attn_mask of no heads": (
        lambda: from_torch_attn_mask(ONES[:, None], n_heads=0), ValueError, "n_heads must be 1"
    ),
    "attn_mask for another batch": (
        lambda: to_torch_attn_mask(ONES[:, None, None], 3, 1), ValueError, "batch=3 and n_heads=1"
    ),
    "attn_mask for other heads": (
        lambda: to_torch_attn_mask(ONES[None, :, None], 1, 3), ValueError, "batch=1 and n_heads=3"
    ),
    "2-D mask to attn_mask": (lambda: to_torch_attn_mask(ONES, 1, 1), ValueError, "must be 4-D"),
    "ints to additive": (lambda: to_additive(ONES.int()), TypeError, r"mask.bool\(\)"),
    "additive ints": (lambda: to_additive(ONES, torch.int64), TypeError, "which can hold -inf"),
    "from additive ints": (lambda: from_additive(ONES.int()), TypeError, "got torch.int32"),
    "from an additive list": (lambda: from_additive([0.0]), TypeError, "got list"),
    "from a bias": (lambda: from_additive(torch.tensor([0.0, -2.5])), ValueError, "got -2.5; sc"),
    "from a steep bias": (lambda: from_additive(torch.tensor([-9e3])), ValueError, "got -9000"),
    "from a nan": (lambda: from_additive(torch.tensor([torch.nan])), ValueError, "got nan"),
    "from infinity": (lambda: from_additive(torch.tensor([torch.inf])), ValueError, "got inf"),
    "mask as list": (lambda: check_mask([[True]]), TypeError, "torch.Tensor of booleans, got list"),
    "mask of ints": (lambda: check_mask(ONES.int()), TypeError, r"got torch.int32.*mask.bool\(\)"),
    "mask of floats": (lambda: check_mask(ONES.double()), TypeError, "passed as bias="),
    "2-D mask": (lambda: check_mask(ONES), ValueError, r"shape \(2, 3\).*use padding_mask"),
    "3-D mask": (lambda: check_mask(ONES[None]), ValueError, r"shape \(1, 2, 3\)"),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()
