"""Our ViT against Hugging Face's, with the same weights, and by what it must do."""

import copy
import dataclasses
import pickle

import pytest
import torch
import torch.nn.functional as F
from parity import gradients
from torch import nn
from torch.testing import assert_close

from attnlib.data import digits
from attnlib.layers import PreNorm
from attnlib.models.vit import (
    OnGrid,
    Vit,
    VitConfig,
    split_patches,
    vit_state_from_hugging_face,
)
from attnlib.positions import LearnedEncoding, LearnedGridEncoding, Rope, SinusoidalGridEncoding
from attnlib.record import record_attention
from attnlib.train import accuracy, fit, set_seed

BATCH = 3
CONFIGS = {
    "one head, one patch": VitConfig((2, 2), 2, 1, 3, 5, 1, 1, 7, 0.0),
    "three heads, five channels": VitConfig((6, 6), 2, 5, 7, 33, 3, 2, 13, 0.0),
    "five heads, wide images": VitConfig((6, 15), 3, 2, 11, 35, 5, 3, 17, 0.0, eps=1e-3),
    "high images, each pixel a patch": VitConfig((5, 3), 1, 3, 2, 14, 2, 2, 11, 0.0),
}
SMALL = CONFIGS["three heads, five channels"]
WIDE = CONFIGS["five heads, wide images"]
EACH_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def model_of(config, **options):
    """A ViT whose parameters are all random: the class token, biases and norms too."""
    model = Vit(config, **options).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.3)
    return model


def images_for(config, batch=BATCH):
    return torch.randn(batch, config.n_channels, *config.image_size, dtype=torch.float64)


def reordered(images, config, order):
    """The same patches, each at another place: ``order`` as in indexing."""
    (rows, columns), size = config.grid, config.patch_size
    x = images.unfold(2, size, size).unfold(3, size, size)  # (B, C, rows, columns, P, P)
    x = x.flatten(2, 3)[:, :, order].unflatten(2, (rows, columns))
    return x.transpose(3, 4).flatten(4).flatten(2, 3)


# -------------------------------------------------------------------------------- the patches


def test_patches_are_read_row_by_row_and_channel_by_channel():
    first = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])
    images = torch.stack([first, first * 100])[None].float()  # two channels
    patches = split_patches(images, 2)[0].int().tolist()
    assert patches == [
        [1, 2, 5, 6, 100, 200, 500, 600],
        [3, 4, 7, 8, 300, 400, 700, 800],
        [9, 10, 13, 14, 900, 1000, 1300, 1400],
        [11, 12, 15, 16, 1100, 1200, 1500, 1600],
    ]


def test_images_need_not_be_square():
    image = torch.arange(12.0).view(1, 1, 2, 6)
    assert split_patches(image, 2)[0].tolist() == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    image = torch.arange(6.0).view(1, 1, 6, 1)
    assert split_patches(image, 1)[0].tolist() == [[0], [1], [2], [3], [4], [5]]


def test_a_linear_map_of_flat_patches_is_a_convolution_that_steps_by_its_own_width():
    convolution = nn.Conv2d(5, 11, kernel_size=3, stride=3).double()
    images = torch.randn(2, 5, 6, 9, dtype=torch.float64)
    tokens = F.linear(split_patches(images, 3), convolution.weight.flatten(1), convolution.bias)
    assert_close(tokens, convolution(images).flatten(2).mT)


def test_the_grid_counts_rows_and_columns_of_patches():
    assert WIDE.grid == (2, 5)
    assert VitConfig().grid == (14, 14)


# --------------------------------------------------------------------- parity with Hugging Face


def pair(config):
    """Our model and Hugging Face's, with the same weights."""
    from transformers import ViTConfig as TheirConfig
    from transformers import ViTForImageClassification

    theirs = ViTForImageClassification(
        TheirConfig(
            image_size=list(config.image_size),
            patch_size=config.patch_size,
            num_channels=config.n_channels,
            num_labels=config.n_classes,
            hidden_size=config.d_model,
            num_attention_heads=config.n_heads,
            num_hidden_layers=config.n_layers,
            intermediate_size=config.d_ff,
            hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=0.0,
            layer_norm_eps=config.eps,
            hidden_act="gelu",
            attn_implementation="sdpa",  # "eager" computes its softmax in float32
        )
    ).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.3)
    ours = Vit(config).double()
    ours.load_state_dict(vit_state_from_hugging_face(theirs.state_dict()))
    return ours, theirs


@EACH_CONFIG
def test_equals_hugging_face_forward_and_backward(config):
    ours, theirs = pair(config)
    images = images_for(config)
    output, expected = ours(images), theirs(images).logits
    assert_close(output, expected)
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    assert_close(gradients(ours), vit_state_from_hugging_face(gradients(theirs)))


def test_no_parameter_goes_missing():
    ours, theirs = pair(SMALL)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert vit_state_from_hugging_face(theirs.state_dict()).keys() == ours.state_dict().keys()


def test_weight_files_are_understood_though_their_names_are_older(tmp_path):
    from safetensors.torch import load_file

    ours, theirs = pair(SMALL)
    theirs.save_pretrained(tmp_path)
    from_file = load_file(tmp_path / "model.safetensors")
    assert from_file.keys() != theirs.state_dict().keys()
    assert_close(vit_state_from_hugging_face(from_file), dict(ours.state_dict()), rtol=0, atol=0)


def test_the_defaults_are_vit_b_16():
    with torch.device("meta"):  # sizes without memory
        model = Vit(VitConfig())
    assert sum(p.numel() for p in model.parameters()) == 86_567_656  # as published
    assert VitConfig().dropout == 0.1  # table 3, ImageNet
    assert all(m.eps == 1e-6 for m in model.modules() if isinstance(m, nn.LayerNorm))


# ------------------------------------------------------------ properties, each with its twin


ORDER = [4, 0, 7, 1, 8, 5, 2, 6, 3]


def test_reordering_moves_whole_patches():
    images = images_for(SMALL)
    assert torch.equal(
        split_patches(reordered(images, SMALL, ORDER), 2), split_patches(images, 2)[:, ORDER]
    )


def test_without_positions_the_order_of_the_patches_is_unknown():
    model, images = model_of(SMALL, positions=nn.Identity()), images_for(SMALL)
    assert_close(model(reordered(images, SMALL, ORDER)), model(images))


@pytest.mark.parametrize(
    "positions",
    [
        Rope(16),
        None,
        OnGrid(LearnedGridEncoding(32, 3, 3), SMALL.grid),
        OnGrid(SinusoidalGridEncoding(32), SMALL.grid),
    ],
    ids=["inside attention", "learned", "learned rows and columns", "sinusoidal rows and columns"],
)
def test_with_positions_the_order_of_the_patches_matters(positions):
    config = dataclasses.replace(SMALL, d_model=32, n_heads=2)
    model, images = model_of(config, positions=positions), images_for(SMALL)
    assert not torch.allclose(model(reordered(images, SMALL, ORDER)), model(images))


def test_inside_a_patch_the_order_always_matters():
    model, images = model_of(SMALL, positions=nn.Identity()), images_for(SMALL)
    mirrored = images.unflatten(-1, (3, 2)).flip(-1).flatten(-2)  # each patch in itself
    assert not torch.allclose(model(mirrored), model(images))


def test_the_class_token_and_the_patches_each_have_a_learned_position():
    model = Vit(SMALL)
    assert isinstance(model.positions, LearnedEncoding)
    assert model.positions.encoding.shape == (1 + 9, SMALL.d_model)


def test_every_pixel_is_seen():
    model, images = model_of(WIDE), images_for(WIDE).requires_grad_()
    model(images).square().sum().backward()
    assert (images.grad != 0).all()


def test_the_class_token_alone_decides():
    model, images = model_of(SMALL), images_for(SMALL)
    seen = {}
    model.norm.register_forward_hook(lambda module, inputs, output: seen.update(x=inputs[0]))
    scores = model(images)
    assert seen["x"].shape == (BATCH, SMALL.d_model)
    assert_close(scores, model.to_logits(model.norm(seen["x"])))


def test_images_of_a_batch_do_not_mix():
    model, images = model_of(SMALL), images_for(SMALL)
    before = model(images)
    images[1] += 1
    after = model(images)
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert (after[1] != before[1]).all()


def test_the_class_token_starts_at_0_and_the_classes_are_told_apart_by_the_image():
    model = Vit(SMALL).double()
    assert not model.class_token.any()
    scores = model(images_for(SMALL))
    assert not torch.allclose(scores[0], scores[1])


def test_dropout_is_everywhere_where_vit_has_it_and_off_in_evaluation():
    model = Vit(dataclasses.replace(SMALL, dropout=0.3)).double()
    images = images_for(SMALL)
    rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
    assert rates == [0.3] * (1 + 2 * SMALL.n_layers)  # embeddings, and two in each layer
    assert not torch.equal(model(images), model(images))
    without = Vit(SMALL).double()
    without.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(images), without(images))
    assert torch.equal(without.eval()(images), without.train()(images))


def test_the_embeddings_are_dropped_too():
    model = model_of(dataclasses.replace(SMALL, n_layers=0, dropout=1.0))
    nothing = model.to_logits(model.norm.bias)
    assert_close(model(images_for(SMALL)), nothing.expand(BATCH, -1))


def test_the_layers_are_different_ones_with_the_norm_first():
    first, second = Vit(SMALL).layers
    assert not torch.equal(first.attention.to_query.weight, second.attention.to_query.weight)
    assert isinstance(first.around_attention, PreNorm)
    assert isinstance(first.around_feed_forward, PreNorm)


def test_recording_the_weights_changes_nothing():
    model, images = model_of(SMALL), images_for(SMALL)
    expected = model(images)
    with record_attention(model) as maps:
        output = model(images)
    assert_close(output, expected)
    assert [m.layer for m in maps] == ["layers.0.attention", "layers.1.attention"]
    for _, weights in maps:
        assert weights.shape == (BATCH, 3, 10, 10)  # heads; the class token and nine patches
        assert_close(weights.sum(-1), torch.ones(BATCH, 3, 10).double())


def test_a_model_remembers_its_config_which_cannot_change():
    assert Vit(SMALL).config is SMALL
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 7


# ---------------------------------------------------------------------- positions on the grid


def test_on_a_grid_each_patch_gets_its_own_row_and_column_and_the_class_token_nothing():
    encoding = LearnedGridEncoding(4, max_rows=2, max_columns=3)
    with torch.no_grad():
        encoding.rows.copy_(torch.tensor([[10.0, 10.0], [20.0, 20.0]]))
        encoding.columns.copy_(torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    x = torch.arange(2 * 7 * 4.0).view(2, 1 + 6, 4)
    before = x.clone()
    added = OnGrid(encoding, (2, 3))(x)[1] - before[1]
    assert added[:, [0, 3]].tolist() == [
        [0, 0], [10, 1], [10, 2], [10, 3], [20, 1], [20, 2], [20, 3]
    ]  # fmt: skip
    assert torch.equal(x, before)


# ------------------------------------------------------------------- copies, states, precision


def test_copies_and_saved_states_say_the_same(tmp_path):
    model, images = model_of(SMALL), images_for(SMALL)
    expected = model(images)
    assert torch.equal(copy.deepcopy(model)(images), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(images), expected)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = model_of(SMALL)
    assert not torch.equal(other(images), expected)
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(other(images), expected)


@pytest.mark.compiles
@pytest.mark.parametrize(
    "positions", [None, nn.Identity(), Rope(10)], ids=["learned", "none", "rope"]
)
def test_compiles_whole(positions):
    config = dataclasses.replace(SMALL, d_model=30)
    model, images = model_of(config, positions=positions), images_for(SMALL)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(images), model(images))


@pytest.mark.compiles
def test_exports_for_any_batch():
    model, images = model_of(SMALL), images_for(SMALL)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (images,), dynamic_shapes=({0: batch},))
    more = images_for(SMALL, batch=5)
    assert_close(program.module()(more), model(more))


@pytest.mark.parametrize(
    ("dtype", "atol"),
    [(torch.bfloat16, 0.05), (torch.float16, 0.005)],  # worst of 200 seeds: 0.020 and 0.0021
)
def test_half_precision_runs_and_stays_near(dtype, atol):
    model, images = Vit(SMALL).double(), images_for(SMALL)
    exact = model(images)
    rough = model.to(dtype)(images.to(dtype))
    assert rough.dtype == dtype
    assert_close(rough.double(), exact, atol=atol, rtol=0)


def test_autocast_runs_and_stays_near():
    model, images = Vit(SMALL), images_for(SMALL).float()
    exact = model(images)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(images)
    assert_close(rough.float(), exact, atol=0.05, rtol=0)  # worst of 200 seeds: 0.024
    rough.sum().backward()
    assert all(g.isfinite().all() for g in gradients(model).values())


# ------------------------------------------------------------------------------------ refusals

REFUSED = {
    "height that is no multiple": (
        lambda m: VitConfig(image_size=(225, 224)),
        "an image of 225 by 224 pixels does not fall into patches of 16 by 16; choose a patch_size",
    ),
    "width that is no multiple": (lambda m: VitConfig((6, 7), patch_size=2), "6 by 7 pixels does"),
    "no patch": (lambda m: VitConfig((6, 6), patch_size=0), "patch_size must be 1 or more, got 0"),
    "negative patch": (lambda m: VitConfig((6, 6), patch_size=-2), "1 or more, got -2"),
    "no image": (lambda m: VitConfig((0, 16)), "height must be 1 or more, got 0"),
    "heads that do not divide": (
        lambda m: Vit(dataclasses.replace(SMALL, n_heads=2)), "d_model=33 must be a multiple"
    ),
    "no channel axis": (
        lambda m: m(torch.zeros(2, 6, 6)),
        r"\(batch, 5 channels, 6 high, 6 wide\), got shape \(2, 6, 6\)",
    ),
    "other channels": (lambda m: m(torch.zeros(2, 3, 6, 6)), r"5 channels.*got shape \(2, 3, 6, 6"),
    "channels last": (lambda m: m(torch.zeros(2, 6, 6, 5)), r"got shape \(2, 6, 6, 5\)"),
    "other size": (lambda m: m(torch.zeros(2, 5, 6, 8)), r"6 high, 6 wide\), got shape \(2, 5, 6,"),
    "patches of 3-D": (
        lambda m: split_patches(torch.zeros(2, 6, 6), 2),
        r"must be \(batch, channels, height, width\), got shape \(2, 6, 6\).*images\[:, None\]",
    ),
    "patches that do not fit": (
        lambda m: split_patches(torch.zeros(1, 1, 6, 8), 3), "6 by 8 pixels does not .* 3 by 3"
    ),
    "another grid": (
        lambda m: OnGrid(SinusoidalGridEncoding(4), (2, 3))(torch.zeros(1, 6, 4)),
        r"must be \(batch, 7, d_model\).* a grid of 2 by 3, got shape \(1, 6, 4\)",
    ),
    "no batch on the grid": (
        lambda m: OnGrid(SinusoidalGridEncoding(4), (2, 3))(torch.zeros(7, 4)), r"shape \(7, 4\)"
    ),
    "a pooler's parameter": (
        lambda m: vit_state_from_hugging_face({"vit.pooler.dense.bias": torch.zeros(2)}),
        "vit.pooler.dense.bias is no parameter of a ViTForImageClassification.*take the whole",
    ),
    "a layer's unknown parameter": (
        lambda m: vit_state_from_hugging_face({"vit.layers.0.mlp.fc3.bias": torch.zeros(2)}),
        "vit.layers.0.mlp.fc3.bias is no",
    ),
}  # fmt: skip
WRONG_TYPES = {
    "one number for both sides": (
        lambda m: VitConfig(image_size=224), r"image_size must be \(height, width\), got 224"
    ),
    "three numbers": (lambda m: VitConfig((3, 16, 16)), r"\(height, width\), got \(3, 16, 16\)"),
    "part of a pixel": (lambda m: VitConfig((6, 6), patch_size=1.5), "whole number, got float 1.5"),
    "whole numbers as pixels": (
        lambda m: m(torch.zeros(2, 5, 6, 6, dtype=torch.uint8)),
        r"images are torch.uint8, but the model is torch.float32; convert .* 0 to 255",
    ),
    "a NumPy array": (
        lambda m: m(torch.zeros(2, 5, 6, 6).numpy()), "got ndarray; from NumPy use torch.from_nu"
    ),
    "another dtype": (
        lambda m: m(torch.zeros(2, 5, 6, 6).double()), "torch.float64, but the model is"
    ),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, words):
    with pytest.raises(ValueError, match=words):
        call(Vit(SMALL))


@pytest.mark.messages
@pytest.mark.parametrize(("call", "words"), WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
def test_wrong_types_are_refused_with_advice(call, words):
    with pytest.raises(TypeError, match=words):
        call(Vit(SMALL))


# ------------------------------------------------------------------------------------- ability


def shuffled(images, config):
    """Each image with its patches in an order of its own."""
    n_patches = config.grid[0] * config.grid[1]
    return torch.cat([reordered(x[None], config, torch.randperm(n_patches)) for x in images])


def read_digits(config, change=lambda images: images, steps=300, batch_size=32):
    """Train on handwritten digits; the share of the kept ones that are then read right."""
    data = digits()
    images = change(data.train_images)
    model = Vit(config)
    order = torch.utils.data.RandomSampler(images, num_samples=steps * batch_size)
    rows = torch.tensor(list(order)).split(batch_size)
    fit(
        model,
        lambda rows: F.cross_entropy(model(images[rows]), data.train_labels[rows]),
        rows,
        steps=steps,
        learning_rate=lambda step: 5e-3 * min(step / 100, 1.01 - step / steps),
    )
    with torch.no_grad():
        guesses = model.eval()(change(data.test_images)).argmax(-1)
    return accuracy(guesses, data.test_labels, ignore_id=-1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_vit_reads_digits_but_not_with_their_patches_shuffled(seed):
    set_seed(seed)
    config = VitConfig((8, 8), 2, 1, 10, d_model=32, n_heads=4, n_layers=2, d_ff=64, dropout=0.0)
    assert read_digits(config) >= 0.9  # worst of 8 seeds: 0.919
    assert read_digits(config, lambda x: shuffled(x, config)) <= 0.8  # best of 6 seeds: 0.733
