"""The original Transformer against PyTorch's, with the same weights; what is its own besides."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from parity import gradients
from torch import nn
from torch.testing import assert_close

from attnlib.layers import PostNorm, PreNorm
from attnlib.masks import left_padding_mask, padding_mask, to_key_padding_mask
from attnlib.models.transformer import Transformer, TransformerConfig, transformer_state_from_torch
from attnlib.positions import LearnedEncoding, SinusoidalEncoding, sinusoidal_encoding

BATCH, K_LEN, Q_LEN = 3, 7, 5
CONFIGS = {
    "one layer, one head": TransformerConfig(11, 11, 5, 1, 1, 13, 23, 0.0),
    "two layers, three heads, not tied": TransformerConfig(
        19, 17, 33, 3, 2, 7, 23, 0.0, tied=False, final_norm=True
    ),
    "three layers, five heads": TransformerConfig(31, 31, 35, 5, 3, 41, 23, 0.0, final_norm=True),
}
SMALL = CONFIGS["two layers, three heads, not tied"]
EACH_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
EACH_RESIDUAL = pytest.mark.parametrize("residual", [PostNorm, PreNorm])


def scattered(model):
    """Make all parameters random, biases and norms too."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.05, std=0.3)
    return model.double()


def texts_for(config):
    source = torch.randint(config.source_vocab_size, (BATCH, K_LEN))
    return source, torch.randint(config.target_vocab_size, (BATCH, Q_LEN))


# --------------------------------------------------------------------- parity with nn.Transformer


class TorchTransformer(nn.Module):
    """PyTorch's encoder and decoder, between embeddings and a head written out in plain terms."""

    def __init__(self, config, residual):
        super().__init__()
        d, options = config.d_model, {"batch_first": True, "norm_first": residual is PreNorm}
        sizes = (d, config.n_heads, config.d_ff, config.dropout)
        norms = [None, None]
        if config.final_norm or residual is PreNorm:
            norms = [nn.LayerNorm(d), nn.LayerNorm(d)]
        self.inner = nn.Transformer(
            d,
            config.n_heads,
            custom_encoder=nn.TransformerEncoder(
                nn.TransformerEncoderLayer(*sizes, **options),
                config.n_layers,
                norms[0],
                enable_nested_tensor=False,
            ),
            custom_decoder=nn.TransformerDecoder(
                nn.TransformerDecoderLayer(*sizes, **options), config.n_layers, norms[1]
            ),
            batch_first=True,
        )
        self.source = nn.Parameter(torch.empty(config.source_vocab_size, d))
        if not config.tied:
            self.target = nn.Parameter(torch.empty(config.target_vocab_size, d))
            self.head = nn.Parameter(torch.empty(config.target_vocab_size, d))

    def forward(self, source, target, **masks):
        table, head = (getattr(self, name, self.source) for name in ("target", "head"))
        x, y = (
            rows[ids] * math.sqrt(rows.shape[1]) + sinusoidal_encoding(ids.shape[1], rows.shape[1])
            for rows, ids in ((self.source, source), (table, target))
        )
        blocked = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.inner(x, y, tgt_mask=blocked, **masks) @ head.T


def to_our_state(theirs, config):
    """Its parameters, or gradients, under our names."""
    inner = {k.removeprefix("inner."): v for k, v in theirs.items() if k.startswith("inner.")}
    tables = [theirs["source"], theirs.get("target"), theirs.get("head")]
    names = ("embed_source.tokens.weight", "embed_target.tokens.weight", "to_logits.weight")
    if config.tied:
        tables = tables[:1] * 3
    return transformer_state_from_torch(inner) | dict(zip(names, tables, strict=True))


def pair(config, residual=PostNorm):
    """Our model and PyTorch's, with the same weights."""
    theirs = scattered(TorchTransformer(config, residual))
    ours = Transformer(config, residual=residual).double()
    ours.load_state_dict(to_our_state(theirs.state_dict(), config))
    return ours, theirs


def assert_gradients_agree(ours, theirs, output, expected, config):
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    found = gradients(ours)
    of_theirs = to_our_state(gradients(theirs), config)
    assert of_theirs.keys() == found.keys() | set(of_theirs if config.tied else ())
    assert_close(found, {name: of_theirs[name] for name in found})


SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([7, 4, 1]), torch.tensor([2, 5, 3])
SOURCE_MASKS = {
    "full": None,
    "padding behind": padding_mask(SOURCE_LENGTHS, K_LEN),
    "padding in front": left_padding_mask(SOURCE_LENGTHS, K_LEN),
}
EACH_SOURCE_MASK = pytest.mark.parametrize(
    "source_mask", SOURCE_MASKS.values(), ids=SOURCE_MASKS.keys()
)


@EACH_CONFIG
@EACH_RESIDUAL
@EACH_SOURCE_MASK
def test_equals_pytorch_forward_and_backward(config, residual, source_mask):
    ours, theirs = pair(config, residual)
    source, target = texts_for(config)
    mask, masks = None, {}
    if source_mask is not None:
        mask = padding_mask(TARGET_LENGTHS, Q_LEN)
        masks["src_key_padding_mask"] = to_key_padding_mask(source_mask)
        masks["memory_key_padding_mask"] = masks["src_key_padding_mask"]
        masks["tgt_key_padding_mask"] = to_key_padding_mask(mask)
    output = ours(source, target, source_mask=source_mask, mask=mask)
    expected = theirs(source, target, **masks)
    assert_close(output, expected)
    assert_gradients_agree(ours, theirs, output, expected, config)


@EACH_CONFIG
def test_padding_in_front_of_the_target_equals_pytorch_where_there_is_text(config):
    ours, theirs = pair(config)
    source, target = texts_for(config)
    real = left_padding_mask(TARGET_LENGTHS, Q_LEN)
    is_text = real[:, 0, 0]
    output = ours(source, target, mask=real)[is_text]
    expected = theirs(source, target, tgt_key_padding_mask=to_key_padding_mask(real))[is_text]
    assert_close(output, expected)
    assert_gradients_agree(ours, theirs, output, expected, config)


@EACH_RESIDUAL
def test_the_parts_equal_pytorchs_encoder_and_decoder(residual):
    ours, theirs = pair(SMALL, residual)
    source, target = texts_for(SMALL)
    x = ours.embed_source(source)
    assert_close(ours.encode(source), theirs.inner.encoder(x))
    memory = torch.randn(BATCH, K_LEN, 33, dtype=torch.float64)
    expected = theirs.inner.decoder(
        ours.embed_target(target), memory, tgt_mask=torch.ones(Q_LEN, Q_LEN).triu(1).bool()
    )
    assert_close(ours.decode(target, memory), ours.to_logits(expected))


def test_the_states_of_the_parts_are_understood():
    part = nn.TransformerDecoder(nn.TransformerDecoderLayer(33, 3, 7, 0.0), 2, nn.LayerNorm(33))
    state = {f"decoder.{name}": tensor for name, tensor in part.state_dict().items()}
    ours = Transformer(SMALL)
    missing, unexpected = ours.load_state_dict(transformer_state_from_torch(state), strict=False)
    assert not unexpected
    assert not any(name.startswith("decoder") for name in missing)
    assert torch.equal(
        ours.decoder[1].cross_attention.to_value.weight,
        part.layers[1].multihead_attn.in_proj_weight[66:],
    )


def test_the_tensors_are_shared_with_pytorchs():
    fused = torch.randn(9, 3)
    ours = transformer_state_from_torch({"encoder.layers.0.self_attn.in_proj_weight": fused})
    fused.zero_()
    assert not ours["encoder.0.attention.to_key.weight"].any()


# ------------------------------------------------------------------------- the paper's numbers


def test_the_defaults_are_the_base_model_of_the_paper_and_the_big_one_is_near():
    sizes = {}
    big = TransformerConfig(d_model=1024, n_heads=16, d_ff=4096, dropout=0.3)
    with torch.device("meta"):  # sizes without memory
        for name, config in (("base", TransformerConfig()), ("big", big)):
            sizes[name] = sum(p.numel() for p in Transformer(config).parameters())
    assert sizes == {"base": 63_082_496, "big": 214_245_376}  # published, rounded: 65M, 213M
    base = TransformerConfig()
    assert (base.n_layers, base.d_model, base.d_ff, base.n_heads) == (6, 512, 2048, 8)
    assert (base.dropout, base.tied, base.final_norm) == (0.1, True, False)


def test_a_config_is_small_and_cannot_be_changed_behind_the_model():
    assert len(dataclasses.fields(TransformerConfig)) <= 10
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 7
    assert Transformer(SMALL).config is SMALL


def test_embeddings_are_scaled_and_get_the_papers_positions():
    model = scattered(Transformer(SMALL))
    ids = torch.tensor([[3, 5, 3]])
    for embed, offset in ((model.embed_source, 0), (model.embed_target, 4)):
        waves = sinusoidal_encoding(3, 33, offset=offset).double()
        expected = embed.tokens.weight[ids] * math.sqrt(33) + waves
        assert_close(embed(ids, offset=offset), expected)
        assert isinstance(embed.positions, SinusoidalEncoding)


def test_learned_positions_are_each_sides_own():
    model = Transformer(SMALL, positions=LearnedEncoding)
    source, target = model.embed_source.positions, model.embed_target.positions
    assert source.encoding.shape == target.encoding.shape == (23, 33)
    assert not torch.equal(source.encoding, target.encoding)


@EACH_CONFIG
def test_tied_means_one_table_for_three(config):
    model = Transformer(config)
    tables = {
        model.embed_source.tokens.weight,
        model.embed_target.tokens.weight,
        model.to_logits.weight,
    }
    assert len(tables) == (1 if config.tied else 3)


def test_a_norm_comes_last_if_asked_for_or_if_the_layers_need_it():
    without = dataclasses.replace(SMALL, final_norm=False)
    for config, residual, expected in (
        (SMALL, PostNorm, nn.LayerNorm),
        (without, PostNorm, nn.Identity),
        (without, PreNorm, nn.LayerNorm),
    ):
        model = Transformer(config, residual=residual)
        assert type(model.encoder_norm) is type(model.decoder_norm) is expected
        layers = [*model.encoder, *model.decoder]
        assert all(isinstance(layer.around_feed_forward, residual) for layer in layers)
        assert len(layers) == 4


# ------------------------------------------------------------------------------- how it starts


def test_tables_start_small_and_linear_maps_keep_the_size():
    config = TransformerConfig(401, 397, 96, 4, 2, 384, 53, tied=False)
    for name, p in Transformer(config).named_parameters():
        if name.endswith("bias"):
            assert not p.any(), name
        elif "norm" in name:
            assert (p == 1).all(), name
        else:
            is_table = "tokens" in name or name == "to_logits.weight"
            std = 96**-0.5 if is_table else math.sqrt(2 / sum(p.shape))
            assert p.std().item() == pytest.approx(std, rel=4 / p.numel() ** 0.5), name
            assert p.abs().max() > 3 * std if is_table else p.abs().max() <= 3**0.5 * std, name


@pytest.mark.parametrize("tied", [True, False])
def test_at_first_it_believes_little(tied):
    config = TransformerConfig(97, 97, 96, 4, 3, 384, 53, 0.0, tied=tied)
    model, ids = Transformer(config), torch.randint(97, (5, 53))
    loss = F.cross_entropy(model(ids, ids).flatten(0, 1), torch.randint(97, (5 * 53,)))
    assert math.log(97) < loss.item() < math.log(97) + 1.0  # logits of size 1 cost half a nat


# ------------------------------------------------------------------------------------ refusals

REFUSED = {
    "tied, of two vocabularies": (
        lambda: TransformerConfig(11, 13), "source_vocab_size=11 and target_vocab_size=13; give ti"
    ),
    "heads that do not divide": (
        lambda: Transformer(dataclasses.replace(SMALL, n_heads=2)), "d_model=33 must be a multiple"
    ),
    "a parameter of another model": (
        lambda: transformer_state_from_torch({"encoder.layers.0.norm3.weight": torch.ones(2)}),
        "encoder.layers.0.norm3.weight is no parameter of an nn.Transformer; take the state of the",
    ),
    "a part without its name": (
        lambda: transformer_state_from_torch({"layers.0.norm1.weight": torch.ones(2)}),
        r"or put encoder. or decoder. in front of the names",
    ),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, words):
    with pytest.raises(ValueError, match=words):
        call()
