"""ViT: an image is cut into patches, and an encoder reads them like the words of a sentence."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlib.checks import check_module, check_sizes, check_tensor
from attnlib.dropout import Dropout
from attnlib.layers import EncoderLayer, PreNorm
from attnlib.positions import LearnedEncoding, Positions


@dataclass(frozen=True)
class VitConfig:
    """The sizes of a ViT; the defaults are those of ViT-B/16, as trained on ImageNet.

    Raises:
        TypeError: If ``image_size`` is not a pair, or a size is not a whole number.
        ValueError: If a size is not positive, or the image does not fall into whole patches.

    Example:
        >>> VitConfig(image_size=(224, 160)).grid  # rows and columns of patches
        (14, 10)

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, tables 1 and 3.
    """

    image_size: tuple[int, int] = (224, 224)  # height and width in pixels
    patch_size: int = 16  # height and width of a patch in pixels
    n_channels: int = 3
    n_classes: int = 1000
    d_model: int = 768
    n_heads: int = 12
    n_layers: int = 12
    d_ff: int = 3072
    dropout: float = 0.1
    eps: float = 1e-6  # as in the authors' code; Hugging Face's default is 1e-12

    def __post_init__(self) -> None:
        if not isinstance(self.image_size, tuple) or len(self.image_size) != 2:
            raise TypeError(f"image_size must be (height, width), got {self.image_size!r}")
        _check_whole_patches(*self.image_size, self.patch_size)
        check_sizes(n_channels=self.n_channels, n_classes=self.n_classes, d_model=self.d_model)
        check_sizes(n_heads=self.n_heads, d_ff=self.d_ff)
        check_sizes(at_least=0, n_layers=self.n_layers)

    @property
    def grid(self) -> tuple[int, int]:
        """How many rows and columns of patches an image has."""
        height, width = self.image_size
        return height // self.patch_size, width // self.patch_size


class Vit(nn.Module):
    r"""Say which class an image belongs to, from its patches.

    .. math::
        z_0 = [x_{class};\; x_1 E;\; \dots;\; x_N E] + E_{pos}, \quad
        logits = \mathrm{LayerNorm}(z_L^{class})\, W + b

    Each patch :math:`x_i` is a flat row of pixels, and :math:`E` is one linear map for all of them.
    The class token is a learned vector that begins alike for every image. What it has gathered
    from the patches after the last layer decides.

    Args:
        config: The sizes.
        positions: Where the tokens learn their place: a module from (batch, 1 + patches, d_model)
            to the same shape, which meets the class token first, then the patches row by row; or
            one that acts inside attention, such as :class:`~attnlib.positions.Rope`. Learned
            vectors if left out; :class:`OnGrid` for rows and columns; ``nn.Identity()`` for none.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, or ``n_heads`` does not divide ``d_model``.

    Example:
        >>> config = VitConfig((8, 8), patch_size=2, n_channels=1, n_classes=10, d_model=6,
        ...                    n_heads=2, n_layers=1, d_ff=7)
        >>> Vit(config)(torch.rand(5, 1, 8, 8)).shape
        torch.Size([5, 10])

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1. Checked against Hugging Face's
        ``ViTForImageClassification``, forward and gradient of every parameter.
    """

    def __init__(self, config: VitConfig, *, positions: nn.Module | None = None) -> None:
        super().__init__()
        rows, columns = config.grid
        if positions is None:
            positions = LearnedEncoding(config.d_model, 1 + rows * columns)
        check_module("positions", positions, "Rope(d_head)")
        acts_inside = isinstance(positions, Positions)
        self.config = config
        self.embed = nn.Linear(config.n_channels * config.patch_size**2, config.d_model)
        self.class_token = nn.Parameter(torch.zeros(config.d_model))  # 0 as in the authors' code
        self.positions = None if acts_inside else positions
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                config.d_model,
                config.n_heads,
                config.d_ff,
                residual=PreNorm,
                positions=positions if acts_inside else None,
                activation=nn.GELU(),
                dropout=config.dropout,
                eps=config.eps,
            )
            for _ in range(config.n_layers)
        )
        self.norm = nn.LayerNorm(config.d_model, eps=config.eps)
        self.to_logits = nn.Linear(config.d_model, config.n_classes)

    def forward(
        self, images: Float[Tensor, "batch n_channels height width"]
    ) -> Float[Tensor, "batch n_classes"]:
        """Score the classes for a batch of images.

        Args:
            images: Pixels, scaled as in training.

        Returns:
            Logits, in nats.

        Raises:
            TypeError: If ``images`` is no tensor, or its dtype is not that of the model.
            ValueError: If the shape is not that of the config.
        """
        self._check_images(images)
        patches = self.embed(split_patches(images, self.config.patch_size))  # (B, N, D)
        class_token = self.class_token.expand(images.shape[0], 1, -1)  # (B, 1, D)
        x = torch.cat([class_token, patches], dim=1)  # (B, 1 + N, D)
        if self.positions is not None:
            x = self.positions(x)
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x)
        return self.to_logits(self.norm(x[:, 0]))

    def _check_images(self, images: Tensor) -> None:
        if not isinstance(images, Tensor):
            raise TypeError(
                f"images must be a float tensor, got {type(images).__name__}; from NumPy use "
                "torch.from_numpy"
            )
        expected = (self.config.n_channels, *self.config.image_size)
        if images.shape[1:] != expected:
            raise ValueError(
                f"images must be (batch, {expected[0]} channels, {expected[1]} high, {expected[2]} "
                f"wide), got shape {tuple(images.shape)}"
            )
        dtype = self.embed.weight.dtype
        if images.dtype != dtype and not torch.is_autocast_enabled(images.device.type):
            raise TypeError(
                f"images are {images.dtype}, but the model is {dtype}; convert with .to(), and "
                "scale whole numbers from 0 to 255 as in training"
            )


def split_patches(
    images: Float[Tensor, "batch n_channels height width"], patch_size: int
) -> Float[Tensor, "batch n_patches patch_values"]:
    """Cut images into square patches, and lay the numbers of each patch out as one flat row.

    Args:
        images: Pixels.
        patch_size: Height and width of a patch, in pixels.

    Returns:
        The patches row by row, as one reads a page. Inside a patch the numbers go channel by
        channel, then row by row.

    Raises:
        TypeError: If ``images`` is not a tensor or ``patch_size`` not a whole number.
        ValueError: If ``images`` is not 4-D, or does not fall into whole patches.

    Example:
        >>> image = torch.arange(8.0).view(1, 1, 2, 4)
        >>> image[0, 0]
        tensor([[0., 1., 2., 3.],
                [4., 5., 6., 7.]])
        >>> split_patches(image, 2)[0]
        tensor([[0., 1., 4., 5.],
                [2., 3., 6., 7.]])

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1.
    """
    check_tensor("images", images)
    if images.ndim != 4:
        raise ValueError(
            f"images must be (batch, channels, height, width), got shape {tuple(images.shape)}; "
            "images of one channel still need its axis: images[:, None]"
        )
    _check_whole_patches(*images.shape[-2:], patch_size)
    x = images.unflatten(-1, (-1, patch_size))  # (B, C, H, W/P, P)
    x = x.unflatten(-3, (-1, patch_size))  # (B, C, H/P, P, W/P, P)
    x = x.permute(0, 2, 4, 1, 3, 5)  # (B, H/P, W/P, C, P, P): a patch's own numbers come last
    return x.flatten(3).flatten(1, 2)  # (B, N, C·P·P)


class OnGrid(nn.Module):
    """Let an encoding of rows and columns serve as the positions of a :class:`Vit`.

    The patches are laid out as a grid for it. The class token is at no place in the image: it
    gets no position.

    Args:
        encoding: A module from (batch, rows, columns, d_model) to the same shape.
        grid: Rows and columns of patches, as in ``VitConfig.grid``.

    Raises:
        ValueError: From ``forward``, if the patches are not as many as the grid has places.

    Example:
        >>> from attnlib.positions import SinusoidalGridEncoding
        >>> OnGrid(SinusoidalGridEncoding(8), (2, 3))(torch.zeros(1, 1 + 6, 8)).shape
        torch.Size([1, 7, 8])

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, appendix D.4.
    """

    def __init__(self, encoding: nn.Module, grid: tuple[int, int]) -> None:
        super().__init__()
        check_module("encoding", encoding, "SinusoidalGridEncoding(d_model)")
        self.encoding = encoding
        self.grid = grid

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"]
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Add the encoding to all tokens but the first."""
        rows, columns = self.grid
        if x.ndim != 3 or x.shape[1] != 1 + rows * columns:
            raise ValueError(
                f"x must be (batch, {1 + rows * columns}, d_model), a class token and the patches "
                f"of a grid of {rows} by {columns}, got shape {tuple(x.shape)}"
            )
        class_token, patches = x[:, :1], x[:, 1:].unflatten(1, self.grid)
        return torch.cat([class_token, self.encoding(patches).flatten(1, 2)], dim=1)


def vit_state_from_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the parameters of a ``ViTForImageClassification`` of Hugging Face to those of ours.

    A convolution that moves on by its own width is a linear map over flat patches, so its kernel
    only needs another shape. The names in published weight files are understood as well.

    Args:
        state: The ``state_dict()`` of a ``ViTForImageClassification``, or what its file holds.

    Returns:
        A state for ``Vit.load_state_dict``; the tensors are shared, not copied.

    Raises:
        ValueError: If a name is not one of ``ViTForImageClassification``'s.

    Example:
        >>> kernel = torch.zeros(8, 3, 2, 2)  # 8 channels out, 3 in, patches of 2 by 2
        >>> name = "vit.embeddings.patch_embeddings.projection.weight"
        >>> vit_state_from_hugging_face({name: kernel})["embed.weight"].shape
        torch.Size([8, 12])
    """
    reshape = {
        "vit.embeddings.cls_token": lambda token: token[0, 0],
        "vit.embeddings.position_embeddings": lambda rows: rows[0],
        "vit.embeddings.patch_embeddings.projection.weight": lambda kernel: kernel.flatten(1),
    }
    return {
        _our_name(name): reshape[name](tensor) if name in reshape else tensor
        for name, tensor in state.items()
    }


def _check_whole_patches(height: int, width: int, patch_size: int) -> None:
    check_sizes(height=height, width=width, patch_size=patch_size)
    if height % patch_size or width % patch_size:
        raise ValueError(
            f"an image of {height} by {width} pixels does not fall into patches of {patch_size} by "
            f"{patch_size}; choose a patch_size that divides both sides, or pad the images"
        )


def _our_name(name: str) -> str:
    if name in _AROUND_THE_LAYERS:
        return _AROUND_THE_LAYERS[name]
    short = name.removeprefix("vit.").replace("encoder.layer.", "layers.")
    match short.split(".", 2):  # layers.3.mlp.fc1.bias
        case ["layers", number, rest]:
            part, _, weight_or_bias = rest.rpartition(".")
            if part in _LAYER:
                return f"layers.{number}.{_LAYER[part]}.{weight_or_bias}"
    raise ValueError(
        f"{name} is no parameter of a ViTForImageClassification that Vit knows; take the whole "
        "state_dict() of such a model"
    )


_AROUND_THE_LAYERS = {
    "vit.embeddings.cls_token": "class_token",
    "vit.embeddings.position_embeddings": "positions.encoding",
    "vit.embeddings.patch_embeddings.projection.weight": "embed.weight",
    "vit.embeddings.patch_embeddings.projection.bias": "embed.bias",
    "vit.layernorm.weight": "norm.weight",
    "vit.layernorm.bias": "norm.bias",
    "classifier.weight": "to_logits.weight",
    "classifier.bias": "to_logits.bias",
}
_LAYER = {
    "layernorm_before": "around_attention.norm",
    "attention.q_proj": "attention.to_query",
    "attention.k_proj": "attention.to_key",
    "attention.v_proj": "attention.to_value",
    "attention.o_proj": "attention.to_output",
    "layernorm_after": "around_feed_forward.norm",
    "mlp.fc1": "feed_forward.widen",
    "mlp.fc2": "feed_forward.narrow",
    # the same in weight files
    "attention.attention.query": "attention.to_query",
    "attention.attention.key": "attention.to_key",
    "attention.attention.value": "attention.to_value",
    "attention.output.dense": "attention.to_output",
    "intermediate.dense": "feed_forward.widen",
    "output.dense": "feed_forward.narrow",
}
