"""Our BART against Hugging Face's, with the same weights: forward, gradients, cache, generation."""

import dataclasses
import warnings

import pytest
import torch
from parity import gradients
from torch import nn
from torch.testing import assert_close

from attnlib.generate import beam_search, greedy
from attnlib.masks import from_attention_mask
from attnlib.models.bart import Bart, BartConfig, bart_state_from_hugging_face
from attnlib.models.encoder_decoder import shift_right
from attnlib.record import record_attention

BATCH, K_LEN, Q_LEN = 3, 7, 6
CONFIGS = {
    "one layer, one head": BartConfig(11, 5, 1, 1, 13, 17, 0.0),
    "two layers, three heads, scaled": BartConfig(19, 33, 3, 2, 7, 23, 0.0, scaled=True),
    "three layers, five heads, not tied": BartConfig(31, 35, 5, 3, 41, 13, 0.0, tied=False),
}
SMALL = CONFIGS["two layers, three heads, scaled"]
EACH_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
START, PAD, END = 2, 1, 2  # as in BART: a text starts with the token that ends the others
# What is real in each of three texts, in Hugging Face's words: 1 = keep.
KEEP = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
KEEP_TARGET = torch.tensor([[1] * 2 + [0] * 4, [1] * 6, [1] * 3 + [0] * 3])
PADDED = {
    "full": (None, None),
    "behind": (KEEP, KEEP_TARGET),
    "in front": (KEEP.flip(-1), KEEP_TARGET.flip(-1)),
}
EACH_PADDED = pytest.mark.parametrize(("keep", "keep_target"), PADDED.values(), ids=PADDED.keys())


def scattered(model):
    """Make all parameters random, biases and norms too, and the bias of the logits."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.05, std=0.3)
    for buffer in model.buffers():
        nn.init.normal_(buffer)
    return model.double()


def their_model(config):
    from transformers import BartConfig as TheirConfig
    from transformers import BartForConditionalGeneration

    model = BartForConditionalGeneration(
        TheirConfig(
            vocab_size=config.vocab_size,
            max_position_embeddings=config.max_len,
            encoder_layers=config.n_layers,
            encoder_ffn_dim=config.d_ff,
            encoder_attention_heads=config.n_heads,
            decoder_layers=config.n_layers,
            decoder_ffn_dim=config.d_ff,
            decoder_attention_heads=config.n_heads,
            d_model=config.d_model,
            dropout=config.dropout,
            scale_embedding=config.scaled,
            tie_word_embeddings=config.tied,
            attn_implementation="eager",
            forced_eos_token_id=None,
        )
    )
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.padding_idx = None  # else padding would get no gradient there
    return scattered(model)


def pair(config):
    """Our model and Hugging Face's, with the same weights."""
    theirs = their_model(config)
    ours = Bart(config).double()
    ours.load_state_dict(bart_state_from_hugging_face(theirs.state_dict()))
    return ours, theirs


def texts_for(config):
    return (torch.randint(config.vocab_size, (BATCH, length)) for length in (K_LEN, Q_LEN))


def masks(*keeps):
    return (None if keep is None else from_attention_mask(keep) for keep in keeps)


# --------------------------------------------------------------------- parity with Hugging Face


def their_gradients(theirs):
    """Without ties, Hugging Face keeps a table that nothing uses: it has no gradient."""
    found = {name: p.grad for name, p in theirs.named_parameters()}
    unused = [name for name, gradient in found.items() if gradient is None]
    assert set(unused) <= {"model.shared.weight"}
    return {name: gradient for name, gradient in found.items() if gradient is not None}


@EACH_CONFIG
@EACH_PADDED
def test_equals_hugging_face_forward_and_backward(config, keep, keep_target):
    ours, theirs = pair(config)
    source, target = texts_for(config)
    source_mask, mask = masks(keep, keep_target)
    output = ours(source, target, source_mask=source_mask, mask=mask)
    expected = theirs(
        source, keep, decoder_input_ids=target, decoder_attention_mask=keep_target
    ).logits
    if keep_target is not None:  # padding that sees nothing is averaged over everything there
        output, expected = output[keep_target.bool()], expected[keep_target.bool()]
    assert_close(output, expected)
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    ours.to_logits.bias = None  # it is not learned
    found = gradients(ours)
    of_theirs = bart_state_from_hugging_face(their_gradients(theirs))
    assert found.keys() <= of_theirs.keys()
    assert_close(found, {name: of_theirs[name] for name in found})


@EACH_CONFIG
@pytest.mark.parametrize("first", [1, 2, 5])
@EACH_PADDED
def test_with_a_cache_it_equals_hugging_face_with_a_cache(config, first, keep, keep_target):
    ours, theirs = pair(config)
    source, target = texts_for(config)
    (source_mask,) = masks(keep)
    cache, theirs_before = ours.start(source, max_len=Q_LEN, mask=source_mask), None
    for start, end in ((0, first), (first, Q_LEN)):
        piece = slice(start, end)
        seen = None if keep_target is None else keep_target[:, :end]
        (mask,) = masks(seen)
        with torch.no_grad():
            output = ours.decode(target[:, piece], mask=mask, cache=cache)
            theirs_now = theirs(
                source,
                keep,
                decoder_input_ids=target[:, piece],
                decoder_attention_mask=seen,
                cache=theirs_before,
                use_cache=True,
            )
        theirs_before = theirs_now.cache
        real = slice(None) if seen is None else seen[:, piece].bool()
        assert_close(output[real], theirs_now.logits[real])


@EACH_CONFIG
def test_the_loss_equals_hugging_faces(config):
    ours, theirs = pair(config)
    source, labels = texts_for(config)
    labels[1, 3:] = -100
    logits = ours(source, shift_right(labels, start_id=START, pad_id=PAD))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert_close(loss, theirs(source, labels=labels).loss)


def test_the_recorded_weights_equal_hugging_faces():
    ours, theirs = pair(SMALL)
    source, target = texts_for(SMALL)
    with record_attention(ours) as maps:
        ours(source, target, source_mask=from_attention_mask(KEEP))
    expected = theirs(source, KEEP, decoder_input_ids=target, output_attentions=True)
    by_layer = {m.layer: m.weights for m in maps}
    assert len(by_layer) == len(maps) == 6
    for number in range(SMALL.n_layers):
        for name, theirs_of in (
            (f"encoder.{number}.attention", expected.encoder_attentions),
            (f"decoder.{number}.self_attention", expected.decoder_attentions),
            (f"decoder.{number}.cross_attention", expected.cross_attentions),
        ):
            assert_close(by_layer[name], theirs_of[number])


# ------------------------------------------------------------------------------------ generation

NEW = 8


def varied_pair(seed):
    """Weights that make the texts vary: tied ones would say the last token again and again."""
    torch.manual_seed(seed)
    config = dataclasses.replace(SMALL, tied=False, scaled=False)
    theirs = their_model(config)
    for name, parameter in theirs.named_parameters():
        is_table = "embed" in name or name == "lm_head.weight"
        if parameter.ndim == 1:  # the weights of the norms stay near 1
            is_norm = "norm" in name and name.endswith("weight")
            nn.init.normal_(parameter, mean=float(is_norm), std=0.1)
        else:
            nn.init.normal_(parameter, std=0.8 if is_table else 0.15)
    theirs.final_logits_bias[:, END] = 4.0  # so that some texts end early
    ours = Bart(config).double()
    ours.load_state_dict(bart_state_from_hugging_face(theirs.state_dict()))
    return ours.eval(), theirs.eval()


def their_text(theirs, source, keep, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that are not needed
        written = theirs.generate(
            source, attention_mask=keep, max_new_tokens=NEW, do_sample=False, **options
        )
    return written[:, 1:]


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("side", ["behind", "in front"])
def test_greedy_generation_equals_hugging_faces(seed, side):
    ours, theirs = varied_pair(seed)
    source, _ = texts_for(SMALL)
    keep, _ = PADDED[side]
    expected = their_text(theirs, source, keep, num_beams=1)
    start = torch.full((BATCH, 1), START)
    cache = ours.start(source, max_len=NEW, mask=from_attention_mask(keep))
    options = {"max_new_tokens": NEW, "eos_id": END, "pad_id": PAD}
    assert torch.equal(greedy(ours.decode, start, cache=cache, **options), expected)
    assert len({tuple(text) for text in expected.tolist()}) > 1


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("n_beams", [2, 5])
def test_beam_search_without_a_length_penalty_equals_hugging_faces(seed, n_beams):
    ours, theirs = varied_pair(seed)
    source, _ = texts_for(SMALL)
    expected = their_text(theirs, source, KEEP, num_beams=n_beams, length_penalty=0.0)
    start = torch.full((BATCH, 1), START)
    cache = ours.start(source, max_len=NEW, mask=from_attention_mask(KEEP))
    options = {"max_new_tokens": NEW, "eos_id": END, "pad_id": PAD}
    written = beam_search(ours.decode, start, n_beams=n_beams, alpha=0.0, cache=cache, **options)
    assert torch.equal(written, expected)


# ------------------------------------------------------------------------------------- the state


@EACH_CONFIG
def test_no_parameter_goes_missing(config):
    ours, theirs = pair(config)
    unused = 2 * 2 * config.d_model  # the rows of positions that nobody looks up
    if not config.tied:
        unused += config.vocab_size * config.d_model  # the table that nobody uses
    learned = sum(p.numel() for p in ours.parameters() if p.requires_grad)
    assert learned == sum(p.numel() for p in theirs.parameters()) - unused
    assert bart_state_from_hugging_face(theirs.state_dict()).keys() == ours.state_dict().keys()


@EACH_CONFIG
def test_weight_files_are_understood(config, tmp_path):
    from safetensors.torch import load_file

    ours, theirs = pair(config)
    theirs.save_pretrained(tmp_path)
    from_file = load_file(tmp_path / "model.safetensors")
    assert ("lm_head.weight" in from_file) is not config.tied
    state = bart_state_from_hugging_face(from_file)
    assert_close(state, dict(ours.state_dict()), rtol=0, atol=0)


def test_positions_begin_in_the_third_row_of_theirs():
    table = torch.arange(10.0).unflatten(0, (5, 2))
    for half, side in (("encoder", "source"), ("decoder", "target")):
        ours = bart_state_from_hugging_face({f"model.{half}.embed_positions.weight": table})
        assert torch.equal(ours[f"embed_{side}.positions.encoding"], table[2:])
    table.zero_()
    assert not ours["embed_target.positions.encoding"].any()  # shared, not copied


def test_tables_that_differ_go_to_their_own_places_in_whichever_order_they_come():
    names = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    state = {f"{name}.weight": torch.tensor(float(n)) for n, name in enumerate(names)}
    for each in (state, dict(reversed(state.items()))):
        ours = bart_state_from_hugging_face(each)
        assert ours == {
            "embed_source.tokens.weight": torch.tensor(1.0),
            "embed_target.tokens.weight": torch.tensor(2.0),
            "to_logits.weight": torch.tensor(3.0),
        }


# ------------------------------------------------------------------------- the model on its own


def test_the_defaults_are_bart_large_and_the_base_one_is_near():
    from transformers import BartConfig as TheirConfig

    theirs = TheirConfig()
    assert dataclasses.astuple(BartConfig()) == (
        theirs.vocab_size,
        theirs.d_model,
        theirs.encoder_attention_heads,
        theirs.encoder_layers,
        theirs.encoder_ffn_dim,
        theirs.max_position_embeddings,
        theirs.dropout,
        theirs.scale_embedding,
        theirs.tie_word_embeddings,
    )
    base = BartConfig(d_model=768, n_heads=12, n_layers=6, d_ff=3072)
    sizes = []
    with torch.device("meta"):  # sizes without memory
        for config in (BartConfig(), base):
            sizes.append(sum(p.numel() for p in Bart(config).parameters() if p.requires_grad))
    # Hugging Face's 406,291,456 and 139,420,416, without the rows of positions that nobody uses.
    assert sizes == [406_291_456 - 4 * 1024, 139_420_416 - 4 * 768]


def test_a_config_is_small_and_cannot_be_changed_behind_the_model():
    assert len(dataclasses.fields(BartConfig)) <= 10
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 7
    assert Bart(SMALL).config is SMALL


@pytest.mark.parametrize("tied", [True, False])
def test_tied_means_one_table_for_three(tied):
    model = Bart(dataclasses.replace(SMALL, tied=tied))
    tables = {
        model.embed_source.tokens.weight,
        model.embed_target.tokens.weight,
        model.to_logits.weight,
    }
    assert len(tables) == (1 if tied else 3)
    positions = [e.positions.encoding for e in (model.embed_source, model.embed_target)]
    assert not torch.equal(*positions)


def test_the_bias_of_the_logits_is_added_and_not_learned():
    model = Bart(SMALL)
    source, target = texts_for(SMALL)
    before = model(source, target)
    model.to_logits.bias[3] = 5.0
    after = model(source, target)
    assert_close((after - before)[..., 3], torch.full((BATCH, Q_LEN), 5.0))
    assert ((after != before).flatten(0, 1).any(0)).sum() == 1
    after.sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == ["to_logits.bias"]


def test_it_starts_small_as_the_authors_do():
    for name, p in Bart(BartConfig(401, 96, 4, 2, 384, 53, tied=False)).named_parameters():
        if name.endswith("bias"):
            assert not p.any(), name
        elif "norm" in name:
            assert (p == 1).all(), name
        else:
            assert p.std().item() == pytest.approx(0.02, rel=4 / p.numel() ** 0.5), name


REFUSED = {
    "heads that do not divide": (
        lambda: Bart(dataclasses.replace(SMALL, n_heads=2)), "d_model=33 must be a multiple"
    ),
    "a parameter of another model": (
        lambda: bart_state_from_hugging_face(
            {"model.encoder.layers.0.encoder_attn.q_proj.bias": torch.ones(2)}
        ),
        "encoder.layers.0.encoder_attn.q_proj.bias is no parameter of a BartForConditionalGenerat",
    ),
    "no prefix": (
        lambda: bart_state_from_hugging_face({"shared.weight": torch.ones(2)}),
        "take the state of the whole model, head included",
    ),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, words):
    with pytest.raises(ValueError, match=words):
        call()
