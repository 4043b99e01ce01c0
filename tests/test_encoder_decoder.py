"""What every encoder-decoder must do, tried on each of them."""

import copy
import dataclasses
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attnlib.cache import KVCache
from attnlib.generate import beam_search, greedy, sample
from attnlib.layers import DecoderLayer, EncoderLayer, PreNorm
from attnlib.masks import causal_mask, left_padding_mask, padding_mask
from attnlib.models.bart import Bart, BartConfig
from attnlib.models.encoder_decoder import EncoderDecoder, TokenEmbedding, shift_right
from attnlib.models.transformer import Transformer, TransformerConfig
from attnlib.positions import LearnedEncoding
from attnlib.record import record_attention

BATCH, K_LEN, Q_LEN, VOCABULARY, HEADS, LAYERS = 3, 7, 6, 19, 3, 2
TRANSFORMER = TransformerConfig(VOCABULARY, VOCABULARY, 33, HEADS, LAYERS, 13, 23, 0.0)
UNTIED = dataclasses.replace(TRANSFORMER, tied=False, final_norm=True)
BART = BartConfig(VOCABULARY, 33, HEADS, LAYERS, 13, 23, 0.0)
MAKERS = {
    "transformer": lambda: Transformer(TRANSFORMER),
    "transformer, pre-norm": lambda: Transformer(UNTIED, residual=PreNorm),
    "bart": lambda: Bart(BART),
}
EACH_MODEL = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
SOURCE_PADDING, PADDING = torch.tensor([0, 3, 6]), torch.tensor([2, 0, 5])
SOURCE_LENGTHS, LENGTHS = K_LEN - SOURCE_PADDING, Q_LEN - PADDING
BEHIND = padding_mask(SOURCE_LENGTHS, K_LEN)


def scattered(model):
    """Make all parameters random, biases and norms too."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.05, std=0.3)
    return model.double()


def model_of(make):
    return scattered(make())


def texts():
    return (torch.randint(VOCABULARY, (BATCH, length)) for length in (K_LEN, Q_LEN))


def other(ids):
    """Other tokens than these."""
    return (ids + 1) % VOCABULARY


# --------------------------------------------------------------- the two halves, and the parts


@EACH_MODEL
def test_encode_then_decode_is_forward(make):
    model, (source, target) = model_of(make), texts()
    memory = model.encode(source, mask=BEHIND)
    output = model.decode(target, memory, memory_mask=BEHIND, padding=PADDING)
    assert torch.equal(output, model(source, target, source_mask=BEHIND, padding=PADDING))
    memory = model.encode(source, padding=SOURCE_PADDING)
    real = left_padding_mask(SOURCE_LENGTHS, K_LEN)
    output = model.decode(target, memory, memory_mask=real)
    assert torch.equal(output, model(source, target, source_padding=SOURCE_PADDING))


def test_each_layer_of_the_decoder_looks_at_the_end_of_the_encoder():
    class Counts(nn.Module):
        def forward(self, x, memory=None, **_):
            return x + (1 if memory is None else 100 * memory)

    embed = TokenEmbedding(nn.Embedding(5, 1), LearnedEncoding(1, 9))
    for parameter in embed.parameters():
        nn.init.zeros_(parameter)
    encoder, decoder = [Counts(), Counts(), Counts()], [Counts(), Counts()]
    model = EncoderDecoder(1, embed, embed, encoder, decoder, nn.Identity())
    ids = torch.zeros(1, 2, dtype=torch.int64)
    assert model.encode(ids).flatten().tolist() == [3, 3]
    assert model(ids, ids).flatten().tolist() == [600, 600]  # 100 * 3, twice


def test_norms_come_after_the_last_layers():
    embed = TokenEmbedding(nn.Embedding(5, 4), LearnedEncoding(4, 9))
    norms = nn.LayerNorm(4), nn.LayerNorm(4)
    layers = [EncoderLayer(4, 1, 3)], [DecoderLayer(4, 1, 3)]
    model = EncoderDecoder(
        1, embed, embed, *layers, nn.Identity(), encoder_norm=norms[0], decoder_norm=norms[1]
    )
    for norm, shift in zip(norms, (7.0, 9.0), strict=True):
        nn.init.constant_(norm.bias, shift)
    ids = torch.tensor([[1, 2]])
    assert_close(model.encode(ids).mean(-1), torch.full((1, 2), 7.0))
    assert_close(model(ids, ids).mean(-1), torch.full((1, 2), 9.0))


def test_an_embedding_scales_adds_positions_normalises_and_drops_in_this_order():
    tokens, positions = nn.Embedding(5, 4), LearnedEncoding(4, 9)
    norm = nn.LayerNorm(4)
    nn.init.uniform_(norm.bias, 1, 2)
    embed = TokenEmbedding(tokens, positions, scale=3.0, norm=norm, dropout=0.5)
    ids = torch.tensor([[1, 4, 1]])
    expected = norm(3.0 * tokens.weight[ids] + positions.encoding[2:5])
    assert_close(embed.eval()(ids, offset=2), expected)
    dropped = embed.train()(ids, offset=2)
    assert_close(dropped, torch.where(dropped == 0, 0.0, 2 * expected))
    assert (dropped == 0).any()
    plain = TokenEmbedding(tokens, positions)
    assert_close(plain(ids), tokens.weight[ids] + positions.encoding[:3])


# -------------------------------------------------------------- properties, each with its twin


@EACH_MODEL
@pytest.mark.parametrize("length", [Q_LEN, 2])
def test_the_future_does_not_leak_but_the_present_counts(make, length):
    model, (source, target) = model_of(make), texts()
    target = target[:, :length]
    before = model(source, target)
    target[:, length // 2] = other(target[:, length // 2])
    after = model(source, target)
    assert torch.equal(after[:, : length // 2], before[:, : length // 2])
    assert (after[:, length // 2 :] != before[:, length // 2 :]).any(-1).all()


@EACH_MODEL
def test_every_token_of_the_source_counts_for_every_token_of_the_target(make):
    model, (source, target) = model_of(make), texts()
    before = model(source, target)
    for place in range(K_LEN):
        changed = source.clone()
        changed[:, place] = other(source[:, place])
        assert (model(changed, target) != before).any(-1).all()


@EACH_MODEL
def test_no_gradient_comes_from_the_future_and_some_from_all_of_source_and_past(make):
    model = model_of(make)
    embedded = []
    for embed in (model.embed_source, model.embed_target):
        embed.register_forward_hook(lambda _, __, x: embedded.append(x) or x.retain_grad())
    source, target = texts()
    model(source, target)[0, 3].square().sum().backward()
    of_source, of_target = (x.grad.any(-1) for x in embedded)
    assert of_source[0].all()
    assert of_target[0].tolist() == [True] * 4 + [False] * 2
    assert not of_source[1:].any()
    assert not of_target[1:].any()


@EACH_MODEL
@pytest.mark.parametrize("side", ["in front", "behind"])
def test_padding_of_the_source_changes_nothing_if_it_is_said_and_something_if_not(make, side):
    model, (source, target) = model_of(make), texts()
    if side == "in front":
        options = {"source_padding": SOURCE_PADDING}
        alone = [text[None, n:] for text, n in zip(source, SOURCE_PADDING, strict=True)]
    else:
        options = {"source_mask": BEHIND}
        alone = [text[None, :n] for text, n in zip(source, SOURCE_LENGTHS, strict=True)]
    expected = torch.cat([model(s, t[None]) for s, t in zip(alone, target, strict=True)])
    assert_close(model(source, target, **options), expected)
    unsaid = model(source, target)
    assert not any(torch.allclose(a, b) for a, b in zip(unsaid[1:], expected[1:], strict=True))


@EACH_MODEL
def test_padding_in_front_of_the_target_changes_nothing_if_it_is_said_and_something_if_not(make):
    model, (source, target) = model_of(make), texts()
    real = left_padding_mask(LENGTHS, Q_LEN)[:, 0, 0]
    alone = [model(source[i, None], target[i, None, n:])[0] for i, n in enumerate(PADDING)]
    assert_close(model(source, target, padding=PADDING)[real], torch.cat(alone))
    assert not torch.allclose(model(source, target)[real], torch.cat(alone))


@EACH_MODEL
def test_padding_behind_the_target_is_the_future(make):
    model, (source, target) = model_of(make), texts()
    expected = model(source, target[:, :4])
    mask = padding_mask(torch.full((BATCH,), 4), Q_LEN)
    assert_close(model(source, target)[:, :4], expected)
    assert_close(model(source, target, mask=mask)[:, :4], expected)
    hidden = model(source, target, mask=mask)[:, 4:]
    assert not torch.allclose(hidden, model(source, target)[:, 4:])


@EACH_MODEL
def test_a_masked_token_of_the_source_cannot_matter_to_anyone(make):
    model, (source, target) = model_of(make), texts()
    mask = torch.ones(1, 1, 1, K_LEN, dtype=torch.bool)
    mask[..., 2] = False
    before = model(source, target, source_mask=mask)
    source[:, 2] = other(source[:, 2])
    assert torch.equal(model(source, target, source_mask=mask), before)


@EACH_MODEL
def test_the_source_can_be_hidden_from_the_target_alone_and_from_itself_alone(make):
    model, (source, target) = model_of(make), texts()
    nobody = model.decode(target, model.encode(source), memory_mask=BEHIND & False)
    changed = model.decode(target, model.encode(other(source)), memory_mask=BEHIND & False)
    assert torch.equal(nobody, changed)
    itself = model.encode(source, mask=torch.eye(K_LEN).bool()[None, None])
    source[:, 3] = other(source[:, 3])
    changed = model.encode(source, mask=torch.eye(K_LEN).bool()[None, None])
    assert (itself != changed).any(0).any(-1).tolist() == [place == 3 for place in range(K_LEN)]


@EACH_MODEL
def test_pairs_of_a_batch_do_not_mix(make):
    model, (source, target) = model_of(make), texts()
    before = model(source, target)
    for ids in (source, target):
        ids[1] = other(ids[1])
        after = model(source, target)
        assert torch.equal(after[[0, 2]], before[[0, 2]])
        assert (after[1] != before[1]).any(-1).all()


class NoPositions(nn.Module):
    def forward(self, x, *, offset=0):
        return x


@EACH_MODEL
def test_the_order_of_source_and_past_is_seen_through_positions_alone(make):
    model, (source, target) = model_of(make), texts()
    model.decoder = model.decoder[:1]  # two layers see the order of the past through the mask, too
    source_order, past_order = torch.randperm(K_LEN), torch.tensor([3, 0, 4, 1, 2, 5])

    def last(source, target):
        return model(source, target)[:, -1]

    assert not torch.allclose(last(source[:, source_order], target), last(source, target))
    assert not torch.allclose(last(source, target[:, past_order]), last(source, target))
    model.embed_source.positions = model.embed_target.positions = NoPositions()
    assert_close(last(source[:, source_order], target[:, past_order]), last(source, target))


@EACH_MODEL
def test_training_and_evaluation_agree_without_dropout(make):
    model, pair = model_of(make), list(texts())
    assert torch.equal(model.train()(*pair), model.eval()(*pair))


@pytest.mark.parametrize(("kind", "config"), [(Transformer, TRANSFORMER), (Bart, BART)])
def test_dropout_is_everywhere_where_the_paper_has_it_and_off_in_evaluation(kind, config):
    model, pair = kind(dataclasses.replace(config, dropout=0.3)).double(), list(texts())
    rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
    assert rates == [0.3] * (2 + 2 * LAYERS + 3 * LAYERS)  # embeddings; 2 and 3 in each layer
    assert not torch.equal(model(*pair), model(*pair))
    without = kind(config).double()
    without.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(*pair), without(*pair))


# ----------------------------------------------------------------------------------- the cache


@EACH_MODEL
@pytest.mark.parametrize("first", range(1, Q_LEN))
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_a_cache_changes_nothing_wherever_the_text_is_split(make, first, padded):
    model, (source, target) = model_of(make), texts()
    padding = PADDING if padded else None
    source_padding, mask = (SOURCE_PADDING, BEHIND.flip(0)) if padded else (None, None)
    with torch.no_grad():
        expected = model(
            source, target, source_padding=source_padding, source_mask=mask, padding=padding
        )
        cache = model.start(source, max_len=Q_LEN, padding=source_padding, mask=mask)
        start = model.decode(target[:, :first], padding=padding, cache=cache)
        each = target[:, first:].split(1, dim=1)
        rest = [model.decode(token, padding=padding, cache=cache) for token in each]
    assert cache.length == cache.max_len == Q_LEN
    assert_close(torch.cat([start, *rest], dim=1), expected)


@EACH_MODEL
def test_the_source_is_projected_once_for_each_layer(make):
    model, (source, target) = model_of(make), texts()
    calls = []
    for layer in model.decoder:
        layer.cross_attention.to_key.register_forward_hook(lambda *_: calls.append(1))
    cache = model.start(source, max_len=Q_LEN)
    with torch.no_grad():
        for token in target.split(1, dim=1):
            model.decode(token, cache=cache)
    assert len(calls) == LAYERS
    assert [pair[0].shape for pair in cache.memory] == [(BATCH, HEADS, K_LEN, 11)] * LAYERS
    assert not torch.equal(*(pair[0] for pair in cache.memory))
    assert not cache.memory[0][0].requires_grad


@EACH_MODEL
def test_a_mask_reaches_cached_tokens(make):
    model, (source, target) = model_of(make), texts()
    mask = torch.ones(1, 1, 1, Q_LEN, dtype=torch.bool)
    mask[..., 1] = False
    with torch.no_grad():
        expected = model(source, target, mask=mask)
        cache = model.start(source, max_len=Q_LEN)
        start = model.decode(target[:, :3], mask=mask[..., :3], cache=cache)
        rest = model.decode(target[:, 3:], mask=mask, cache=cache)
    assert_close(torch.cat([start, rest], dim=1), expected)


@EACH_MODEL
def test_generation_with_a_cache_writes_what_it_writes_without(make):
    model, (source, _) = model_of(make), texts()
    prompt = torch.randint(VOCABULARY, (BATCH, 2))
    padding = torch.tensor([1, 0, 0])
    memory = model.encode(source, mask=BEHIND)
    without = partial(model.decode, memory=memory, memory_mask=BEHIND)
    options = {"max_new_tokens": 9, "eos_id": 4, "padding": padding}
    cache = model.start(source, max_len=12, mask=BEHIND)
    written = greedy(model.decode, prompt, cache=cache, **options)
    assert torch.equal(written, greedy(without, prompt, **options))
    cache = model.start(source, max_len=12, mask=BEHIND)
    dice = torch.Generator().manual_seed(5)
    drawn = sample(model.decode, prompt, cache=cache, generator=dice, **options)
    assert torch.equal(drawn, sample(without, prompt, generator=dice.manual_seed(5), **options))


@EACH_MODEL
def test_each_source_of_a_batch_gets_the_beams_that_it_gets_alone(make):
    model, (source, _) = model_of(make), texts()
    start = torch.full((BATCH, 1), 2)
    options = {"max_new_tokens": 7, "n_beams": 3, "eos_id": 4, "pad_id": 0}
    together = beam_search(
        model.decode, start, cache=model.start(source, max_len=8, mask=BEHIND), **options
    )
    for row, (text, n) in enumerate(zip(source, SOURCE_LENGTHS, strict=True)):
        cache = model.start(text[None, :n], max_len=8)
        alone = beam_search(model.decode, start[:1], cache=cache, **options)[0]
        assert torch.equal(together[row, : len(alone)], alone)
        assert not together[row, len(alone) :].any()


def test_a_cache_that_was_reordered_goes_on_with_the_right_sources():
    model, (source, target) = model_of(MAKERS["bart"]), texts()
    rows = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        expected = model(source[rows], target[rows], source_mask=BEHIND[rows])
        cache = model.start(source, max_len=Q_LEN, mask=BEHIND)
        model.decode(target[:, :4], cache=cache)
        cache.reorder(rows)
        assert_close(model.decode(target[rows, 4:], cache=cache), expected[:, 4:])


# ----------------------------------------------------------------------------------- recording


@EACH_MODEL
def test_recording_changes_nothing_and_hears_every_layer(make):
    model, (source, target) = model_of(make), texts()
    options = {"source_mask": BEHIND, "padding": PADDING}
    expected = model(source, target, **options)
    with record_attention(model) as maps:
        output = model(source, target, **options)
    assert_close(output, expected)
    names = ["encoder.0.attention", "encoder.1.attention"]
    names += [f"decoder.{n}.{kind}_attention" for n in (0, 1) for kind in ("self", "cross")]
    assert [m.layer for m in maps] == names
    shapes = [(K_LEN, K_LEN)] * 2 + [(Q_LEN, Q_LEN), (Q_LEN, K_LEN)] * 2
    assert [tuple(m.weights.shape) for m in maps] == [(BATCH, HEADS, *shape) for shape in shapes]
    cross = maps[-1].weights
    assert_close(cross.sum(-1), torch.ones_like(cross[..., 0]))
    assert not cross[1, :, :, 4:].any()  # padding
    assert not torch.allclose(cross[:, 0], cross[:, 1])  # heads differ
    self_attention = maps[2].weights
    assert not self_attention.triu(1).any()


# ------------------------------------------------------------------- copies, states, precision


@EACH_MODEL
def test_copies_and_saved_states_say_the_same(make, tmp_path):
    model, pair = model_of(make), list(texts())
    expected = model(*pair)
    clone = copy.deepcopy(model)
    assert torch.equal(clone(*pair), expected)
    tied = model.to_logits.weight is model.embed_source.tokens.weight
    assert (clone.to_logits.weight is clone.embed_target.tokens.weight) == tied
    assert clone.to_logits.weight is not model.to_logits.weight
    assert torch.equal(pickle.loads(pickle.dumps(model))(*pair), expected)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    another = model_of(make)
    assert not torch.equal(another(*pair), expected)
    another.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(another(*pair), expected)


@EACH_MODEL
@pytest.mark.parametrize(
    ("dtype", "worst"),
    [(torch.bfloat16, 0.1), (torch.float16, 0.015)],  # of 100 seeds: 0.051 and 0.0068
)
def test_half_precision_runs_and_stays_near(make, dtype, worst):
    model, (source, target) = make().double(), texts()
    options = {"source_mask": BEHIND, "padding": PADDING}
    real = left_padding_mask(LENGTHS, Q_LEN)[:, 0, 0]
    exact = model(source, target, **options)
    rough = model.to(dtype)(source, target, **options)
    assert rough.dtype == dtype
    assert_close(rough.double()[real], exact[real], atol=worst, rtol=0)
    with torch.no_grad():
        cache = model.start(source, max_len=Q_LEN, mask=BEHIND)
        model.decode(target[:, :5], padding=PADDING, cache=cache)
        last = model.decode(target[:, 5:], padding=PADDING, cache=cache)
    assert_close(last.double(), exact[:, 5:], atol=worst, rtol=0)


@EACH_MODEL
def test_autocast_runs_and_stays_near(make):
    model, (source, target) = make(), texts()
    exact = model(source, target, source_mask=BEHIND)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(source, target, source_mask=BEHIND)
        with torch.no_grad():
            cache = model.start(source, max_len=Q_LEN, mask=BEHIND)
            model.decode(target[:, :5], cache=cache)
            last = model.decode(target[:, 5:], cache=cache)
    assert_close(rough.float(), exact, atol=0.1, rtol=0)  # worst of 100 seeds: 0.036
    assert_close(last.float(), exact[:, 5:], atol=0.1, rtol=0)
    rough.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@EACH_MODEL
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_source_and_a_target_of_nothing_but_padding_harm_nobody(make, dtype):
    model, (source, target) = make().to(dtype), texts()
    options = {"source_padding": torch.tensor([0, 7, 3]), "padding": torch.tensor([6, 2, 0])}
    output = model(source, target, **options)
    output.float().square().mean().backward()
    assert output.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


def test_a_nan_in_the_source_reaches_the_whole_target():
    model, (source, target) = model_of(lambda: Transformer(UNTIED)), texts()
    model.embed_source.tokens.weight.data[source[0, 2]] = torch.nan
    assert model(source, target)[0].isnan().all()


@pytest.mark.compiles
@EACH_MODEL
def test_it_compiles_into_one_graph(make):
    torch.compiler.reset()
    model = model_of(make)
    model.encoder, model.decoder = model.encoder[:1], model.decoder[:1]
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
    options = {"source_padding": torch.tensor([1, 0, 2]), "padding": torch.tensor([0, 2, 1])}
    for k_len, q_len in ((5, 7), (7, 4)):
        pair = [torch.randint(VOCABULARY, (BATCH, length)) for length in (k_len, q_len)]
        assert_close(compiled(*pair, **options), model(*pair, **options))
    compiled(*pair, **options).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.compiles
@EACH_MODEL
def test_it_can_be_exported_for_any_batch_and_lengths(make):
    model, pair = model_of(make), tuple(texts())
    batch, k_len, q_len = (
        torch.export.Dim(name, max=most)
        for name, most in (("batch", 64), ("k_len", 23), ("q_len", 23))
    )
    shapes = {"source": {0: batch, 1: k_len}, "target": {0: batch, 1: q_len}}
    exported = torch.export.export(model, pair, dynamic_shapes=shapes).module()
    for n, *lengths in ((3, 7, 6), (2, 11, 13), (5, 3, 2)):
        pair = [torch.randint(VOCABULARY, (n, length)) for length in lengths]
        assert_close(exported(*pair), model(*pair))


# --------------------------------------------------------------------------------- shift right


@pytest.mark.parametrize(("start_id", "pad_id"), [(2, 1), (0, 0), (5, 3)])
def test_shifting_right_equals_hugging_faces(start_id, pad_id):
    from transformers.models.bart.modeling_bart import shift_tokens_right

    labels = torch.randint(7, (3, 5))
    labels[1, 2:] = -100
    expected = shift_tokens_right(labels, pad_id, start_id)
    before = labels.clone()
    assert torch.equal(shift_right(labels, start_id=start_id, pad_id=pad_id), expected)
    assert torch.equal(labels, before)


def test_what_is_shown_is_what_came_before_each_label():
    shown = shift_right(torch.tensor([[7, 8, 9], [6, 0, 0]]), start_id=1, pad_id=3, ignore_id=0)
    assert shown.tolist() == [[1, 7, 8], [1, 6, 3]]


# ------------------------------------------------------------------------------------- refusals

IDS = torch.zeros(2, 3, dtype=torch.int64)
MEMORY = torch.zeros(2, 3, 33)
REFUSED = {
    "1-D source": (lambda m: m(IDS[0], IDS), ValueError, r"source must be \(batch, length\)"),
    "1-D source to encode": (lambda m: m.encode(IDS[0]), ValueError, "source must be"),
    "an empty source": (
        lambda m: m.start(IDS[:, :0], max_len=3), ValueError, r"source must .* shape \(2, 0\)"
    ),
    "1-D target": (lambda m: m(IDS, IDS[0]), ValueError, r"target must be \(batch, length\)"),
    "another batch": (lambda m: m(IDS, IDS[:1]), ValueError, "agree in batch and heads"),
    "a long source": (
        lambda m: m(torch.zeros(1, 24).long(), IDS[:1]), ValueError, "positions 0 to 23 are asked"
    ),
    "a long target": (
        lambda m: m(IDS[:1], torch.zeros(1, 24).long()), ValueError, "positions 0 to 23 are asked"
    ),
    "no source": (
        lambda m: m.decode(IDS), ValueError, "needs a source: a memory from encode.. or a ca"
    ),
    "two sources": (
        lambda m: m.decode(IDS, MEMORY, cache=m.start(IDS, max_len=3)),
        ValueError,
        "a cache holds the source already: leave memory and memory_mask out",
    ),
    "two masks of the source": (
        lambda m: m.decode(IDS, memory_mask=causal_mask(3), cache=m.start(IDS, max_len=3)),
        ValueError,
        "a cache holds the source already",
    ),
    "a cache without source": (
        lambda m: m.decode(IDS, cache=KVCache(2, 3)), ValueError, "holds no source; make it with st"
    ),
    "a cache of another model": (
        lambda m: m.decode(IDS, cache=KVCache(5, 3)), ValueError, "has 5 layers, but the model has"
    ),
    "a full cache": (
        lambda m: m.decode(IDS, cache=m.start(IDS, max_len=2)), ValueError, "3 more do not fit"
    ),
    "no room": (lambda m: m.start(IDS, max_len=0), ValueError, "max_len must be 1 or more"),
    "a mask with a row for each token": (
        lambda m: m(IDS, IDS, source_mask=causal_mask(3)),
        ValueError,
        r"\(batch, heads, 1, k_len\), got \(1, 1, 3, 3\); for more, call encode\(\) and decode\(\)",
    ),
    "a mask of another length": (
        lambda m: m(IDS, IDS, source_mask=padding_mask(torch.tensor([1, 2]), 4)),
        ValueError,
        r"does not broadcast .* = \(2, 3, 3, 3\)",
    ),
    "a float mask": (
        lambda m: m(IDS, IDS, source_mask=torch.ones(2, 1, 1, 3)), TypeError, "must be torch.bool"
    ),
    "padding of one": (
        lambda m: m(IDS, IDS, source_padding=torch.tensor([1])), ValueError, "each of 2 texts"
    ),
    "float padding": (
        lambda m: m(IDS, IDS, padding=torch.ones(2)), TypeError, "whole numbers, got torch.float32"
    ),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with torch.no_grad(), pytest.raises(error, match=words):
        call(Bart(BART))
