"""Our T5 against Hugging Face's, with the same weights, and by what it must do."""

import copy
import dataclasses
import pickle
from functools import partial

import pytest
import torch
from parity import gradients
from torch import nn
from torch.testing import assert_close

from attnlib.cache import KVCache
from attnlib.generate import beam_search, greedy, sample
from attnlib.layers import MultiHeadAttention
from attnlib.masks import causal_mask, from_attention_mask, padding_mask
from attnlib.models.t5 import (
    T5,
    T5_CONFIGS,
    T5Config,
    T5Layer,
    t5_state_from_hugging_face,
)
from attnlib.record import record_attention

BATCH, K_LEN, Q_LEN = 3, 7, 5
CONFIGS = {
    "one head, ReLU, tied": T5Config(11, 6, 1, 5, 13, 1, 0.0),
    "three heads, gated, not tied": T5Config(19, 10, 3, 4, 7, 2, 0.0, gated=True, tied=False),
    "five heads, gated, tied, another pad": T5Config(23, 8, 5, 2, 9, 2, 0.0, gated=True, pad_id=2),
    "two heads, ReLU, not tied": T5Config(17, 12, 2, 3, 5, 3, 0.0, tied=False),
}
SMALL = CONFIGS["three heads, gated, not tied"]
EACH_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
EVERYTHING, BEHIND = (
    torch.ones(BATCH, K_LEN).long(),
    torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6]),
)
KEEPS = {"no padding": EVERYTHING, "behind": BEHIND, "in front": BEHIND.flip(-1)}  # 1 = keep
EACH_KEEP = pytest.mark.parametrize("keep", KEEPS.values(), ids=KEEPS.keys())


def scattered(model):
    """Make all parameters random, norms too."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.05, std=0.4)
    return model.double()


def model_of(config=SMALL):
    return scattered(T5(config)).eval()


def ids_for(config=SMALL, length=K_LEN, batch=BATCH):
    """Ids without those of padding and end."""
    return torch.randint(3, config.vocab_size, (batch, length))


# --------------------------------------------------------------------- parity with Hugging Face


@pytest.fixture
def exact_norms(monkeypatch):
    """Let their normalisation work in float64 as well: it turns to float32 in the middle."""
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    monkeypatch.setattr(T5LayerNorm, "forward", forward)


def their_model(config, start=False):
    """Hugging Face's, with random parameters: those that it starts with, or larger ones."""
    from transformers import T5Config, T5ForConditionalGeneration

    theirs = T5ForConditionalGeneration(
        T5Config(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            d_kv=config.d_head,
            d_ff=config.d_ff,
            num_layers=config.n_layers,
            num_heads=config.n_heads,
            dropout_rate=config.dropout,
            feed_forward_proj="gated-gelu" if config.gated else "relu",
            tie_word_embeddings=config.tied,
            pad_token_id=config.pad_id,
            decoder_start_token_id=config.pad_id,
            attn_implementation="eager",
        )
    )
    if start:
        return theirs
    if not config.tied:  # theirs are always tied at first; files hold a head of their own
        theirs.lm_head.weight = nn.Parameter(torch.empty_like(theirs.lm_head.weight))
    return scattered(theirs).eval()


def pair(config):
    """Our model and Hugging Face's, with the same weights."""
    theirs = their_model(config)
    ours = T5(config).double().eval()
    ours.load_state_dict(t5_state_from_hugging_face(theirs.state_dict()))
    return ours, theirs


def assert_gradients_agree(ours, theirs, output, expected):
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    expected = t5_state_from_hugging_face(gradients(theirs))
    assert_close(gradients(ours), {name: expected[name] for name in gradients(ours)})
    assert expected.keys() - gradients(ours).keys() <= {
        "embed_target.tokens.weight",
        "to_logits.weight",
    }


@EACH_CONFIG
@EACH_KEEP
@pytest.mark.parametrize("q_len", [1, 5])
@pytest.mark.usefixtures("exact_norms")
def test_equals_hugging_face_forward_and_backward(config, keep, q_len):
    ours, theirs = pair(config)
    source, target = ids_for(config), ids_for(config, q_len)
    output = ours(source, target, source_mask=from_attention_mask(keep))
    expected = theirs(source, attention_mask=keep, decoder_input_ids=target).logits
    assert_close(output, expected)
    assert_gradients_agree(ours, theirs, output, expected)


@pytest.mark.usefixtures("exact_norms")
def test_equals_hugging_face_where_far_tokens_share_a_bucket():
    ours, theirs = pair(SMALL)
    source, target = ids_for(length=141, batch=1), ids_for(length=45, batch=1)
    output, expected = ours(source, target), theirs(source, decoder_input_ids=target).logits
    assert_close(output, expected)
    assert_gradients_agree(ours, theirs, output, expected)


@EACH_CONFIG
@pytest.mark.parametrize("side", ["behind", "in front"])
@pytest.mark.usefixtures("exact_norms")
def test_equals_hugging_face_with_padding_in_the_target(config, side):
    ours, theirs = pair(config)
    source, target, keep = ids_for(config), ids_for(config), KEEPS[side]
    real = keep.bool()  # padding that sees nothing is averaged over everything there
    output = ours(source, target, mask=from_attention_mask(keep))[real]
    expected = theirs(source, decoder_input_ids=target, decoder_attention_mask=keep).logits[real]
    assert_close(output, expected)
    assert_gradients_agree(ours, theirs, output, expected)


@EACH_CONFIG
def test_equals_hugging_face_to_the_precision_of_its_norm(config):
    ours, theirs = pair(config)
    source, target = ids_for(config), ids_for(config, Q_LEN)
    expected = theirs(source, decoder_input_ids=target).logits
    assert_close(ours(source, target), expected, rtol=1e-5, atol=1e-5)


@EACH_CONFIG
@EACH_KEEP
@pytest.mark.usefixtures("exact_norms")
def test_with_a_cache_it_equals_hugging_face_with_a_cache(config, keep):
    ours, theirs = pair(config)
    source, target = ids_for(config), ids_for(config, Q_LEN)
    with torch.no_grad():
        cache, their_cache = ours.start(source, max_len=Q_LEN, mask=from_attention_mask(keep)), None
        memory = theirs.encoder(source, attention_mask=keep)
        for piece in target.split([2, 1, 2], dim=1):
            expected = theirs(
                encoder_outputs=memory,
                attention_mask=keep,
                decoder_input_ids=piece,
                cache=their_cache,
                use_cache=True,
            )
            their_cache = expected.cache
            assert_close(ours.decode(piece, cache=cache), expected.logits)


def weights_of(maps, end):
    return [m.weights for m in maps if m.layer.endswith(end)]


def test_the_recorded_weights_equal_hugging_faces():
    ours, theirs = pair(SMALL)
    source, target = ids_for(), ids_for(length=Q_LEN)
    with record_attention(ours) as maps:
        ours(source, target)
    expected = theirs(source, decoder_input_ids=target, output_attentions=True)
    close = partial(assert_close, rtol=1e-5, atol=1e-5)
    close(weights_of(maps[:2], "self_attention"), list(expected.encoder_attentions))
    close(weights_of(maps[2:], "self_attention"), list(expected.decoder_attentions))
    close(weights_of(maps, "cross_attention"), list(expected.cross_attentions))
    assert [m.layer for m in maps[::2]] == [
        "encoder.0.self_attention",
        "decoder.0.self_attention",
        "decoder.1.self_attention",
    ]


@EACH_CONFIG
def test_no_parameter_goes_missing(config):
    ours, theirs = pair(config)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert t5_state_from_hugging_face(theirs.state_dict()).keys() == ours.state_dict().keys()
    assert (ours.to_logits.weight is ours.embed_source.tokens.weight) == config.tied


def test_a_file_without_a_head_is_tied_and_an_old_one_has_a_bias_too_many():
    shared = torch.randn(3, 2)
    ours = t5_state_from_hugging_face(
        {
            "shared.weight": shared,
            "encoder.embed_tokens.weight": shared,
            "decoder.embed_tokens.weight": shared,
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": shared,
        }
    )
    assert ours.keys() == {
        "embed_source.tokens.weight",
        "embed_target.tokens.weight",
        "to_logits.weight",
    }
    assert all(tensor is shared for tensor in ours.values())


@EACH_CONFIG
def test_labels_shift_as_hugging_faces_do(config):
    ours, theirs = T5(config), their_model(config)
    labels = ids_for(config)
    labels[1, 4:] = -100
    assert torch.equal(ours.shift_right(labels), theirs._shift_right(labels))
    assert (labels[1, 4:] == -100).all()  # and stay as they are


@EACH_CONFIG
@EACH_KEEP
def test_greedy_texts_equal_hugging_faces(config, keep):
    ours, theirs = pair(config)
    source, mask = ids_for(config), from_attention_mask(keep)
    options = {"do_sample": False, "num_beams": 1, "eos_token_id": 1}
    expected = theirs.generate(source, attention_mask=keep, max_new_tokens=9, **options)
    first = torch.full((BATCH, 1), config.pad_id)
    cache = ours.start(source, max_len=9, mask=mask)
    written = greedy(
        ours.decode, first, max_new_tokens=9, eos_id=1, pad_id=config.pad_id, cache=cache
    )
    assert torch.equal(written, expected[:, 1:])


# ------------------------------------------------------------------------------------ its sizes

PUBLISHED = {  # number of parameters
    "small": 60_506_624,
    "base": 222_903_552,
    "large": 737_668_096,
    "3b": 2_851_598_336,
    "11b": 11_307_321_344,
    "v1.1-small": 76_961_152,
    "v1.1-base": 247_577_856,
    "v1.1-large": 783_150_080,
    "v1.1-xl": 2_849_757_184,
    "v1.1-xxl": 11_135_332_352,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_sizes_have_as_many_parameters_as_published(name):
    with torch.device("meta"):  # sizes without memory
        model = T5(T5_CONFIGS[name])
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]


def test_the_published_sizes_are_all_and_cannot_be_changed():
    assert T5_CONFIGS.keys() == PUBLISHED.keys()
    with pytest.raises(TypeError):
        T5_CONFIGS["tiny"] = SMALL


def test_the_defaults_are_t5_small():
    from transformers import T5Config as Theirs

    theirs = Theirs()
    assert T5_CONFIGS["small"] == T5Config()
    assert dataclasses.astuple(T5Config()) == (
        theirs.vocab_size,
        theirs.d_model,
        theirs.num_heads,
        theirs.d_kv,
        theirs.d_ff,
        theirs.num_layers,
        theirs.dropout_rate,
        theirs.is_gated_act,
        theirs.scale_decoder_outputs,
        theirs.pad_token_id,
    )


def test_a_config_is_small_and_cannot_be_changed_behind_the_model():
    assert len(dataclasses.fields(T5Config)) <= 10
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 7
    assert T5(SMALL).config is SMALL


# ----------------------------------------------------------------------------- how it starts


def test_it_starts_like_hugging_faces():
    torch.manual_seed(3)
    config = T5Config(401, 96, 4, 16, 200, 6)
    theirs = t5_state_from_hugging_face(their_model(config, start=True).state_dict())
    for name, p in T5(config).named_parameters():
        n_sigma = 4 / (2 * p.numel()) ** 0.5  # 4 standard errors of a standard deviation, each
        assert p.std().item() == pytest.approx(theirs[name].std().item(), rel=2 * n_sigma), name
        assert abs(p.mean() - theirs[name].mean()) <= 9 * p.std() / p.numel() ** 0.5, name
    assert torch.equal(T5(config).decoder_norm[0].weight, torch.ones(96))


@pytest.mark.parametrize("config", [SMALL, CONFIGS["one head, ReLU, tied"]])
def test_at_first_it_believes_little(config):
    config = dataclasses.replace(config, vocab_size=97, d_model=64, n_heads=4, d_head=16, d_ff=64)
    source, target = torch.randint(97, (2, 20, 31))
    logits = T5(config)(source, target)
    assert 0.7 < logits.std() < 1.4  # what is summed up has as many parts as it is divided by


# -------------------------------------------------------------- properties, each with its twin


def test_the_future_does_not_leak_but_the_present_counts():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    before = model(source, target)
    target[:, 3] = (target[:, 3] + 1) % SMALL.vocab_size
    after = model(source, target)
    assert torch.equal(after[:, :3], before[:, :3])
    assert (after[:, 3:] != before[:, 3:]).any(-1).all()


def test_the_whole_source_counts_for_every_token():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    before = model(source, target)
    for place in (0, K_LEN - 1):
        other = source.clone()
        other[:, place] = (other[:, place] + 1) % SMALL.vocab_size
        assert (model(other, target) != before).any(-1).all()


@EACH_CONFIG
@pytest.mark.parametrize("side", ["behind", "in front"])
def test_padding_of_the_source_changes_nothing_if_it_is_said_and_something_if_not(config, side):
    model, source, target = model_of(config), ids_for(config), ids_for(config, Q_LEN)
    keep = KEEPS[side].bool()
    expected = [model(s[k][None], t[None])[0] for s, k, t in zip(source, keep, target, strict=True)]
    expected = torch.stack(expected)
    assert_close(model(source, target, source_mask=from_attention_mask(keep)), expected)
    assert not torch.allclose(model(source, target), expected)


def test_padding_in_front_of_the_source_may_be_said_as_a_count():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    count, mask = torch.tensor([0, 3, 6]), from_attention_mask(KEEPS["in front"])
    expected = model(source, target, source_mask=mask)
    assert_close(model(source, target, source_padding=count), expected)
    with torch.no_grad():
        cache = model.start(source, max_len=Q_LEN, padding=count)
        assert_close(model.decode(target, cache=cache), expected)


@pytest.mark.parametrize("side", ["behind", "in front"])
def test_padding_of_the_target_changes_nothing(side):
    model, source, target = model_of(), ids_for(), ids_for()
    keep = KEEPS[side].bool()
    output = model(source, target, mask=from_attention_mask(keep))
    for i in range(BATCH):
        assert_close(output[i, keep[i]], model(source[[i]], target[i, keep[i]][None])[0])
    hidden = model(source, target)[keep]
    same = torch.allclose(output[keep], hidden)
    assert same == (side == "behind")  # what is behind is the future


def test_a_target_with_padding_in_front_is_written_as_it_would_be_alone():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    padding = torch.tensor([2, 0, 1])
    with torch.no_grad():
        cache = model.start(source, max_len=Q_LEN)
        pieces = target[:, :3], target[:, 3:4], target[:, 4:]
        each = [model.decode(piece, padding=padding, cache=cache) for piece in pieces]
        output = torch.cat(each, dim=1)
        for i, n in enumerate(padding):
            assert_close(output[i, n:], model(source[[i]], target[i, n:][None])[0])
        assert not torch.allclose(output[0, 2:], model(source, target)[0, 2:])


@pytest.mark.messages
def test_padding_of_the_target_is_one_number_for_each_text():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    with pytest.raises(ValueError, match="padding must say one number for each of 3 texts"):
        model.decode(target, model.encode(source), padding=torch.tensor([2, 0]))


def test_sequences_of_a_batch_do_not_mix():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    before = model(source, target)
    for changed in (source, target):
        changed[1] = (changed[1] + 1) % SMALL.vocab_size
        after = model(source, target)
        assert torch.equal(after[[0, 2]], before[[0, 2]])
        assert (after[1] != before[1]).any(-1).all()
        before = after


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_order_counts_through_the_bias_alone(stack):
    config = dataclasses.replace(SMALL, n_layers=1)  # two see the order through the causal mask
    model, source, target = model_of(config), ids_for(), ids_for(length=Q_LEN)
    shuffled = source[:, [3, 0, 5, 1, 4, 2, 6]], target[:, [3, 0, 2, 1, 4]]

    def last():
        return model(source, target)[:, -1]

    def shuffled_last():
        if stack == "encoder":
            return model(shuffled[0], target)[:, -1]
        return model(source, shuffled[1])[:, -1]

    assert not torch.allclose(last(), shuffled_last())
    nn.init.zeros_(getattr(model, f"{stack}_positions").table)
    assert_close(last(), shuffled_last())


def test_each_stack_has_one_table_for_all_of_its_layers():
    model = T5(SMALL)
    tables = {n: p.shape for n, p in model.named_parameters() if "table" in n}
    assert tables == {"encoder_positions.table": (32, 3), "decoder_positions.table": (32, 3)}
    assert model.encoder_positions.bidirectional
    assert not model.decoder_positions.bidirectional
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert len(attentions) == 3 * SMALL.n_layers
    assert all(m.positions is None and m.attend.scale == 1 for m in attentions)
    assert not any(n.endswith(".bias") for n in model.state_dict())


def test_cross_attention_has_no_bias_and_a_memory_without_order_stays_so():
    model, memory = model_of(), torch.randn(BATCH, K_LEN, SMALL.d_model, dtype=torch.float64)
    target = ids_for(length=Q_LEN)
    assert_close(model.decode(target, memory.flip(1)), model.decode(target, memory))


@pytest.mark.parametrize("keep", [None, *KEEPS.values()], ids=["no mask", *KEEPS])
@pytest.mark.parametrize("first", range(1, Q_LEN))
def test_a_cache_changes_nothing_wherever_the_text_is_split(keep, first):
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    mask = None if keep is None else from_attention_mask(keep)
    with torch.no_grad():
        expected = model(source, target, source_mask=mask)
        cache = model.start(source, max_len=Q_LEN, mask=mask)
        pieces = [target[:, :first], *target[:, first:].split(1, dim=1)]
        each = [model.decode(piece, cache=cache) for piece in pieces]
        assert_close(torch.cat(each, dim=1), expected)
        cache.crop(first)
        assert_close(model.decode(target[:, first:], cache=cache), expected[:, first:])


def test_a_mask_of_the_target_reaches_cached_keys():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    mask = torch.ones(1, 1, 1, Q_LEN, dtype=torch.bool)
    mask[..., 1] = False
    with torch.no_grad():
        expected = model(source, target, mask=mask)
        cache = model.start(source, max_len=Q_LEN)
        start = model.decode(target[:, :3], mask=mask[..., :3], cache=cache)
        rest = model.decode(target[:, 3:], mask=mask, cache=cache)
    assert_close(torch.cat([start, rest], dim=1), expected)
    assert not torch.allclose(model(source, target), expected)


def test_the_source_is_read_once_and_its_keys_are_kept():
    model, source = model_of(), ids_for()
    with torch.no_grad():
        cache = model.start(source, max_len=3)
        memory = model.encode(source)
        del model.encoder  # nobody needs it from now on
        assert_close(model.decode(ids_for(length=3), cache=cache).isfinite().all().item(), True)
    for layer, kept in zip(model.decoder, cache.memory, strict=True):
        assert_close(list(kept), list(layer.cross_attention.keys_and_values(memory)))


WRITERS = {
    "greedy": greedy,
    "sample": lambda *a, **k: sample(*a, generator=torch.Generator().manual_seed(5), **k),
    "beam_search": partial(beam_search, n_beams=3),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("side", ["behind", "in front"])
def test_it_writes_the_same_text_with_a_cache_and_without(write, side):
    model, source, mask = model_of(), ids_for(), from_attention_mask(KEEPS[side])
    first = torch.full((BATCH, 1), SMALL.pad_id)
    options = {"max_new_tokens": 6, "eos_id": 1}
    cached = write(model.decode, first, cache=model.start(source, max_len=6, mask=mask), **options)
    if write is WRITERS["beam_search"]:  # its beams multiply the rows
        for i in range(BATCH):
            memory = model.encode(source[[i]], mask=mask[[i]])
            decode = partial(_decode_expanded, model, memory, mask[[i]])
            alone = write(decode, first[[i]], **options)
            assert torch.equal(alone, cached[[i], : alone.shape[1]])
        return
    memory = model.encode(source, mask=mask)
    plain = write(partial(model.decode, memory=memory, memory_mask=mask), first, **options)
    assert torch.equal(cached, plain)


def _decode_expanded(model, memory, mask, ids):
    return model.decode(ids, memory.expand(len(ids), -1, -1), memory_mask=mask)


def test_training_and_evaluation_agree_without_dropout():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    assert torch.equal(model.train()(source, target), model.eval()(source, target))


@EACH_CONFIG
def test_dropout_is_where_hugging_face_has_it_and_off_in_evaluation(config):
    config = dataclasses.replace(config, dropout=0.3)
    ours, theirs = pair(config)
    source, target = ids_for(config), ids_for(config, Q_LEN)
    expected = ours(source, target)
    without = T5(dataclasses.replace(config, dropout=0.0)).double()
    without.load_state_dict(ours.state_dict())
    assert torch.equal(without(source, target), expected)
    calls = [0, 0]
    for i, model in enumerate((ours.train(), theirs.train())):
        for dropout in (m for m in model.modules() if isinstance(m, nn.Dropout)):
            assert dropout.p == 0.3
            dropout.register_forward_hook(lambda *_, i=i: calls.__setitem__(i, calls[i] + 1))
    assert not torch.equal(ours(source, target), ours(source, target))
    theirs(source, decoder_input_ids=target)
    assert calls[0] == 2 * calls[1]  # there are two calls of ours


def test_recording_changes_nothing():
    model, source, target = model_of(), ids_for(), ids_for(length=Q_LEN)
    expected = model(source, target)
    with record_attention(model) as maps:
        assert_close(model(source, target), expected)
    shapes = [(3, 3, 7, 7)] * 2 + [(3, 3, 5, 5), (3, 3, 5, 7)] * 2
    assert [tuple(m.weights.shape) for m in maps] == shapes


# ------------------------------------------------------------------- copies, states, precision


@EACH_CONFIG
def test_copies_and_saved_states_say_the_same(tmp_path, config):
    model, inputs = model_of(config), (ids_for(config), ids_for(config, Q_LEN))
    expected = model(*inputs)
    clone = copy.deepcopy(model)
    assert torch.equal(clone(*inputs), expected)
    assert (clone.to_logits.weight is clone.embed_target.tokens.weight) == config.tied
    assert clone.embed_target.tokens.weight is not model.embed_target.tokens.weight
    assert torch.equal(pickle.loads(pickle.dumps(model))(*inputs), expected)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = model_of(config)
    assert not torch.equal(other(*inputs), expected)
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(other(*inputs), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_and_stays_near(dtype):
    worst = 0.2 if dtype == torch.bfloat16 else 0.03
    model, source, target = T5(SMALL).double(), ids_for(), ids_for(length=Q_LEN)
    mask = from_attention_mask(BEHIND)
    exact = model(source, target, source_mask=mask)
    rough = model.to(dtype)(source, target, source_mask=mask)
    assert rough.dtype == dtype
    assert_close(rough.double(), exact, atol=worst, rtol=0)
    with torch.no_grad():
        cache = model.start(source, max_len=Q_LEN, mask=mask)
        model.decode(target[:, :3], cache=cache)
        last = model.decode(target[:, 3:], cache=cache)
    assert_close(last.double(), exact[:, 3:], atol=worst, rtol=0)


def test_large_weights_are_too_much_for_float16_but_not_for_bfloat16():
    model, source, target = T5(SMALL), ids_for(), ids_for(length=Q_LEN)
    model.encoder[0].feed_forward.narrow.weight.data *= 1e6
    exact = model(source, target)
    assert model.bfloat16()(source, target).isfinite().all()
    assert exact.isfinite().all()
    assert not model.half()(source, target).isfinite().all()


def test_autocast_runs_and_stays_near():
    model, source, target = T5(SMALL), ids_for(), ids_for(length=Q_LEN)
    exact = model(source, target)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(source, target)
        with torch.no_grad():
            cache = model.start(source, max_len=Q_LEN)
            model.decode(target[:, :3], cache=cache)
            last = model.decode(target[:, 3:], cache=cache)
    assert_close(rough.float(), exact, atol=0.2, rtol=0)
    assert_close(last.float(), exact[:, 3:], atol=0.2, rtol=0)
    rough.sum().backward()
    assert all(g.isfinite().all() for g in gradients(model).values())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_source_of_nothing_but_padding_harms_nobody(dtype):
    model, source, target = model_of().to(dtype), ids_for(), ids_for(length=Q_LEN)
    output = model(source, target, source_mask=padding_mask(torch.tensor([7, 0, 3]), K_LEN))
    output.float().square().mean().backward()
    assert output.isfinite().all()
    assert all(g.isfinite().all() for g in gradients(model).values())


@pytest.mark.compiles
def test_it_compiles_into_one_graph():
    torch.compiler.reset()
    model = model_of(dataclasses.replace(SMALL, n_layers=1))
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    mask = from_attention_mask(BEHIND)
    for q_len in (5, 8):
        source, target = ids_for(), ids_for(length=q_len)
        assert_close(compiled(source, target), model(source, target))
    masked = [m(source, target, source_mask=mask) for m in (compiled, model)]
    assert_close(*masked)
    masked[0].square().sum().backward()
    assert all(g.isfinite().all() for g in gradients(model).values())


@pytest.mark.compiles
def test_it_can_be_exported_for_any_batch_and_lengths():
    model = model_of()
    batch = torch.export.Dim("batch", max=64)
    k_len, q_len = torch.export.Dim("k_len", max=90), torch.export.Dim("q_len", min=2, max=90)
    inputs = ids_for(), ids_for(length=Q_LEN)
    shapes = {"source": {0: batch, 1: k_len}, "target": {0: batch, 1: q_len}}
    exported = torch.export.export(model, inputs, dynamic_shapes=shapes).module()
    for n, source_len, target_len in ((3, 7, 5), (2, 50, 33), (5, 3, 2)):
        inputs = ids_for(length=source_len, batch=n), ids_for(length=target_len, batch=n)
        assert_close(exported(*inputs), model(*inputs))


# ------------------------------------------------------------------------------------- refusals

IDS = torch.zeros(2, 3).long()
MEMORY = torch.zeros(2, 3, SMALL.d_model)

REFUSED = {
    "1-D source": (lambda m: m(IDS[0], IDS), ValueError, r"source must be \(batch, length\)"),
    "no source": (lambda m: m(IDS[:, :0], IDS), ValueError, r"or more, got shape \(2, 0\)"),
    "no target": (lambda m: m(IDS, IDS[:, :0]), ValueError, r"target must be .* shape \(2, 0\)"),
    "1-D labels": (lambda m: m.shift_right(IDS[0]), ValueError, r"labels must be \(batch, length"),
    "another batch": (
        lambda m: m(IDS, IDS[:1]), ValueError, "query, key and value must agree in batch and heads"
    ),
    "float mask": (
        lambda m: m(IDS, IDS, source_mask=torch.ones(2, 1, 1, 3)), TypeError, "must be torch.bool"
    ),
    "target's mask of another length": (
        lambda m: m(IDS, IDS, mask=causal_mask(4)), ValueError, r"= \(2, 3, 3, 3\)"
    ),
    "2-D mask": (
        lambda m: m(IDS, IDS, mask=torch.ones(2, 3).bool()), ValueError, "mask must be 4-D"
    ),
    "mask of another length": (
        lambda m: m(IDS, IDS, source_mask=causal_mask(1, 4)), ValueError, r"= \(2, 3, 3, 3\)"
    ),
    "neither memory nor cache": (
        lambda m: m.decode(IDS), ValueError, r"needs a source: a memory from encode\(\) or a cache"
    ),
    "memory and cache": (
        lambda m: m.decode(IDS, MEMORY, cache=m.start(IDS, max_len=3)),
        ValueError,
        "a cache holds the source already: leave memory and memory_mask out",
    ),
    "a cache without a memory": (
        lambda m: m.decode(IDS, cache=KVCache(2, 3)), ValueError, "the cache holds no source; make"
    ),
    "a cache of another model": (
        lambda m: m.decode(IDS, cache=T5(T5Config(9, 10, 3, 4, 7, 1)).start(IDS, max_len=3)),
        ValueError,
        "the cache has 1 layers, but the model has 2",
    ),
    "a full cache": (
        lambda m: m.decode(IDS, cache=m.start(IDS, max_len=2)), ValueError, "3 more do not fit"
    ),
    "no room": (lambda m: m.start(IDS, max_len=0), ValueError, "max_len must be 1 or more, got 0"),
    "a layer that can't read": (
        lambda m: m.encoder[0](MEMORY, MEMORY), ValueError, "one that does not can't read"
    ),
    "a layer that has nothing to read": (
        lambda m: T5Layer(SMALL, crosses=True)(MEMORY), ValueError, "that crosses needs a memory"
    ),
    "pad outside": (
        lambda m: T5Config(pad_id=32128), ValueError, "pad_id=32128 must be one of the 32128 ids"
    ),
    "pad below": (lambda m: T5Config(pad_id=-1), ValueError, "pad_id=-1 must be one of the 32128"),
    "no heads": (
        lambda m: T5(dataclasses.replace(SMALL, n_heads=0)), ValueError, "n_heads must be 1 or mor"
    ),
    "no inner width": (
        lambda m: T5(dataclasses.replace(SMALL, d_ff=0)), ValueError, "d_ff must be 1 or more"
    ),
    **{
        f"the name {name}": (
            lambda m, name=name: t5_state_from_hugging_face({name: IDS}),
            ValueError,
            f"{name} is no parameter of a T5ForConditionalGeneration that T5 knows; take",
        )
        for name in (
            "block.0.layer.0.SelfAttention.q.weight",
            "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight",
            "encoder.block.1.layer.2.layer_norm.weight",
            "encoder.block.1.layer.0.SelfAttention.z.weight",
            "classification_head.dense.weight",
        )
    },
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with torch.no_grad(), pytest.raises(error, match=words):
        call(T5(SMALL))
