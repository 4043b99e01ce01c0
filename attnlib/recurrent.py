"""Reading a sequence one step after another: RNN, LSTM, GRU, and the first attention.

A *cell* makes one step: it takes the input of this step and the state, and returns the next state.
:class:`Recurrent` is the loop over time. A state is a tuple of tensors, and the first of them is
what the cell shows of itself: an RNN and a GRU have ``(hidden,)``, an LSTM has
``(hidden, memory)``.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlib.checks import check_floats, check_sizes
from attnlib.functional import masked_softmax
from attnlib.masks import check_mask, padding_mask

# ------------------------------------------------------------------------------------- cells


class _Cell(nn.Module):
    """The two linear maps of a cell, and what :class:`Recurrent` asks of any cell."""

    n_states = 1  # tensors in the state
    n_maps = 1  # vectors of width d_hidden that the equations want from input and state

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__()
        check_sizes(d_input=d_input, d_hidden=d_hidden)
        self.d_input, self.d_hidden = d_input, d_hidden
        self.from_input = nn.Linear(d_input, self.n_maps * d_hidden)
        self.from_state = nn.Linear(d_hidden, self.n_maps * d_hidden)
        for parameter in self.parameters():  # as torch.nn's own cells start
            nn.init.uniform_(parameter, -(d_hidden**-0.5), d_hidden**-0.5)


class RNNCell(_Cell):
    r"""One step of the plain recurrent network: mix the input into the state, and squash.

    .. math:: h_t = \tanh(W x_t + b + U h_{t-1} + c)

    Args:
        d_input: Width of the inputs.
        d_hidden: Width of the state.

    Raises:
        TypeError: If a width is not a whole number.
        ValueError: If a width is not positive.

    Example:
        >>> (hidden,) = RNNCell(3, 5)(torch.zeros(1, 3), (torch.zeros(1, 5),))
        >>> hidden.shape
        torch.Size([1, 5])

    Source:
        Elman 1990, doi:10.1207/s15516709cog1402_1. Checked against ``torch.nn.RNN``.
    """

    def forward(
        self, x: Float[Tensor, "batch d_input"], state: tuple[Float[Tensor, "batch d_hidden"], ...]
    ) -> tuple[Float[Tensor, "batch d_hidden"], ...]:
        """Return the next state, ``(hidden,)``."""
        (hidden,) = state
        return (torch.tanh(self.from_input(x) + self.from_state(hidden)),)


class LSTMCell(_Cell):
    r"""One step of the LSTM: a memory that is added to, behind three gates.

    .. math::
        \begin{aligned}
        i, f, o &= \sigma(W_{i,f,o}\, x_t + U_{i,f,o}\, h_{t-1}) \\
        m_t &= f \odot m_{t-1} + i \odot \tanh(W_m x_t + U_m h_{t-1}) \\
        h_t &= o \odot \tanh(m_t)
        \end{aligned}

    Each product with W or U adds a bias of its own. A forget gate near 1 hands the memory, and the
    gradient, on as it is: that is how an LSTM remembers for longer than an RNN.

    Args:
        d_input: Width of the inputs.
        d_hidden: Width of the state.

    Raises:
        TypeError: If a width is not a whole number.
        ValueError: If a width is not positive.

    Example:
        >>> state = (torch.zeros(1, 5), torch.zeros(1, 5))
        >>> hidden, memory = LSTMCell(3, 5)(torch.zeros(1, 3), state)
        >>> hidden.shape
        torch.Size([1, 5])

    Source:
        Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735; the forget gate is from
        Gers et al. 2000, doi:10.1162/089976600300015015. Checked against ``torch.nn.LSTM``.
    """

    n_states = 2
    n_maps = 4

    def forward(
        self, x: Float[Tensor, "batch d_input"], state: tuple[Float[Tensor, "batch d_hidden"], ...]
    ) -> tuple[Float[Tensor, "batch d_hidden"], ...]:
        """Return the next state, ``(hidden, memory)``."""
        hidden, memory = state
        write, forget, new, show = (self.from_input(x) + self.from_state(hidden)).chunk(4, dim=-1)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(write) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(memory), memory


class GRUCell(_Cell):
    r"""One step of the GRU: a gate says how much of the old state stays.

    .. math::
        \begin{aligned}
        r, z &= \sigma(W_{r,z}\, x_t + U_{r,z}\, h_{t-1}) \\
        n &= \tanh(W_n x_t + r \odot (U_n h_{t-1})) \\
        h_t &= (1 - z) \odot n + z \odot h_{t-1}
        \end{aligned}

    Each product with W or U adds a bias of its own. As in PyTorch, the reset gate :math:`r` works
    on :math:`U_n h`; in the paper it works on :math:`h`, before the product.

    Args:
        d_input: Width of the inputs.
        d_hidden: Width of the state.

    Raises:
        TypeError: If a width is not a whole number.
        ValueError: If a width is not positive.

    Example:
        >>> (hidden,) = GRUCell(3, 5)(torch.zeros(1, 3), (torch.zeros(1, 5),))
        >>> hidden.shape
        torch.Size([1, 5])

    Source:
        Cho et al. 2014, arXiv:1406.1078, section 2.3. Checked against ``torch.nn.GRU``.
    """

    n_maps = 3

    def forward(
        self, x: Float[Tensor, "batch d_input"], state: tuple[Float[Tensor, "batch d_hidden"], ...]
    ) -> tuple[Float[Tensor, "batch d_hidden"], ...]:
        """Return the next state, ``(hidden,)``."""
        (hidden,) = state
        x_reset, x_keep, x_new = self.from_input(x).chunk(3, dim=-1)
        h_reset, h_keep, h_new = self.from_state(hidden).chunk(3, dim=-1)
        reset = torch.sigmoid(x_reset + h_reset)
        keep = torch.sigmoid(x_keep + h_keep)
        new = torch.tanh(x_new + reset * h_new)
        return ((1 - keep) * new + keep * hidden,)


# --------------------------------------------------------------------------- loops over time


class Recurrent(nn.Module):
    """Run a cell along a sequence, one step after another: no step can start before the last.

    Args:
        cell: A cell of this module, or any module with ``d_input``, ``d_hidden`` and ``n_states``
            that maps ``(x, state)`` to the next state.

    Example:
        >>> outputs, state = Recurrent(GRUCell(3, 5))(torch.randn(2, 7, 3))
        >>> outputs.shape, torch.equal(outputs[:, -1], state[0])
        (torch.Size([2, 7, 5]), True)
    """

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell
        self.d_output = cell.d_hidden

    def forward(
        self,
        x: Float[Tensor, "batch length d_input"],
        state: tuple[Float[Tensor, "batch d_hidden"], ...] | None = None,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch length d_hidden"], tuple[Float[Tensor, "batch d_hidden"], ...]]:
        """Read a batch of sequences.

        Args:
            x: One input for each step.
            state: Where to start; zeros if left out.
            lengths: Number of real steps in each sequence; all of them if left out. The state is
                held from there on, so padding cannot matter, whatever it contains.

        Returns:
            ``(outputs, state)``: what the cell showed after each step, 0 behind the end of a
            sequence, and the state after its last step.

        Raises:
            TypeError: If ``x`` has another dtype than the cell, or ``lengths`` no whole numbers.
            ValueError: If a shape or a length does not fit, or a sequence is empty.
        """
        _check_sequence("x", x, self.cell.d_input, next(self.cell.parameters()))
        batch, length, _ = x.shape
        if state is None:
            zeros = x.new_zeros(batch, self.cell.d_hidden)
            state = (zeros,) * self.cell.n_states
        _check_state(state, self.cell, batch)
        inside = _inside(lengths, batch, length)  # (B, L, 1)
        if inside is not None:
            x = x.masked_fill(~inside, 0.0)  # or a NaN there would reach the gradients as 0 · NaN
        outputs = []
        for t, step in enumerate(x.unbind(dim=1)):
            stepped = self.cell(step, state)
            state = stepped if inside is None else _choose(inside[:, t], stepped, state)
            outputs.append(state[0])
        shown = torch.stack(outputs, dim=1)  # (B, L, H)
        return (shown if inside is None else shown.masked_fill(~inside, 0.0)), state


class RNN(Recurrent):
    """A plain recurrent network: :class:`Recurrent` over an :class:`RNNCell`.

    Args:
        d_input: Width of the inputs.
        d_hidden: Width of the state.

    Example:
        >>> RNN(3, 5)(torch.randn(2, 7, 3))[0].shape
        torch.Size([2, 7, 5])

    Source:
        Checked against ``torch.nn.RNN``, forward and gradient of every parameter.
    """

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__(RNNCell(d_input, d_hidden))


class LSTM(Recurrent):
    """A long short-term memory: :class:`Recurrent` over an :class:`LSTMCell`.

    Args:
        d_input: Width of the inputs.
        d_hidden: Width of the state.

    Example:
        >>> LSTM(3, 5)(torch.randn(2, 7, 3))[0].shape
        torch.Size([2, 7, 5])

    Source:
        Checked against ``torch.nn.LSTM``, forward and gradient of every parameter.
    """

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__(LSTMCell(d_input, d_hidden))


class GRU(Recurrent):
    """A gated recurrent unit: :class:`Recurrent` over a :class:`GRUCell`.

    Args:
        d_input: Width of the inputs.
        d_hidden: Width of the state.

    Example:
        >>> GRU(3, 5)(torch.randn(2, 7, 3))[0].shape
        torch.Size([2, 7, 5])

    Source:
        Checked against ``torch.nn.GRU``, forward and gradient of every parameter.
    """

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__(GRUCell(d_input, d_hidden))


class Bidirectional(nn.Module):
    """Read a sequence from both ends, so that each output knows what comes before and after it.

    Args:
        recurrent: :class:`RNN`, :class:`LSTM` or :class:`GRU`; made twice.
        d_input: Width of the inputs.
        d_hidden: Width of the state of each direction; the outputs are twice as wide.

    Example:
        >>> Bidirectional(GRU, 3, 5)(torch.randn(2, 7, 3))[0].shape
        torch.Size([2, 7, 10])

    Source:
        Schuster and Paliwal 1997, doi:10.1109/78.650093. Checked against ``torch.nn.GRU`` with
        ``bidirectional=True``, forward and gradient of every parameter.
    """

    def __init__(
        self, recurrent: Callable[[int, int], nn.Module], d_input: int, d_hidden: int
    ) -> None:
        super().__init__()
        self.left_to_right = recurrent(d_input, d_hidden)
        self.right_to_left = recurrent(d_input, d_hidden)
        self.d_output = 2 * d_hidden

    def forward(
        self,
        x: Float[Tensor, "batch length d_input"],
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch length d_output"], tuple[Float[Tensor, "batch d_output"], ...]]:
        """Read a batch of sequences; arguments, returns and errors as for :class:`Recurrent`.

        The final state holds that of each direction, side by side.
        """
        forth, forth_state = self.left_to_right(x, lengths=lengths)
        back, back_state = self.right_to_left(_reversed(x, lengths), lengths=lengths)
        outputs = torch.cat([forth, _reversed(back, lengths)], dim=-1)  # (B, L, 2·H)
        return outputs, tuple(
            torch.cat(pair, dim=-1) for pair in zip(forth_state, back_state, strict=True)
        )


# ------------------------------------------------------------------------- additive attention


class AdditiveAttention(nn.Module):
    r"""Bahdanau's attention: a small network says how well a query and a token fit together.

    .. math::
        s_{ij} = v^\top \tanh(W q_i + U k_j), \qquad
        \mathrm{output}_i = \sum_j \mathrm{softmax}_j(s_{ij})\; k_j

    There is one head, and the values are the tokens of the memory themselves. The scores are
    bounded by :math:`\sum |v|`, so nothing is divided by a root. The price is a vector of width
    ``d_attention`` for each pair of query and token, where a dot product needs one number.

    A recorder (:func:`attnlib.record.record_attention`) hears this layer as it hears the others:
    ``listeners`` are called with the weights of each call. Here the weights are always at hand, so
    listening costs nothing and changes nothing.

    Args:
        d_query: Width of the queries.
        d_memory: Width of the tokens that answer, and of the output.
        d_attention: Width in which the two are added.

    Raises:
        TypeError: If a width is not a whole number.
        ValueError: If a width is not positive.

    Example:
        >>> attention = AdditiveAttention(d_query=5, d_memory=3, d_attention=8)
        >>> attention(torch.randn(2, 1, 5), torch.randn(2, 7, 3)).shape
        torch.Size([2, 1, 3])

    Source:
        Bahdanau et al. 2015, arXiv:1409.0473, section 3.1 and appendix A.1.2.
    """

    def __init__(self, d_query: int, d_memory: int, d_attention: int) -> None:
        super().__init__()
        check_sizes(d_query=d_query, d_memory=d_memory, d_attention=d_attention)
        self.to_query = nn.Linear(d_query, d_attention, bias=False)
        self.to_key = nn.Linear(d_memory, d_attention, bias=False)
        self.to_score = nn.Linear(d_attention, 1, bias=False)
        self.listeners: list[Callable[[Tensor], None]] = []

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"listeners": []}  # who listens to this layer does not to its copies

    def forward(
        self,
        query: Float[Tensor, "batch q_len d_query"],
        memory: Float[Tensor, "batch k_len d_memory"],
        *,
        keys: Float[Tensor, "batch k_len d_attention"] | None = None,
        mask: Bool[Tensor, "#batch 1 #q_len #k_len"] | None = None,
    ) -> Float[Tensor, "batch q_len d_memory"]:
        """Return the weighted average of the memory for each query.

        Args:
            query: What asks; in a decoder, its state, as a sequence of one.
            memory: The tokens that answer.
            keys: ``layer.to_key(memory)``, if it is at hand: a decoder asks the same memory at
                every step, and computes its keys once.
            mask: ``True`` where a query may attend to a token; 4-D like every mask, with one head.
                A query that may attend to nothing gets an output of exactly 0.

        Raises:
            TypeError: If ``mask`` is not boolean, or dtypes differ.
            ValueError: If a shape does not fit, or a sequence is empty.
        """
        _check_sequence("query", query, self.to_query.in_features, self.to_query.weight)
        _check_sequence("memory", memory, self.to_key.in_features, self.to_key.weight)
        if query.shape[0] != memory.shape[0]:
            raise ValueError(
                f"query and memory must agree in batch, got {query.shape[0]} and {memory.shape[0]}"
            )
        if mask is not None:
            _check_one_head(mask)
        keys = self.to_key(memory) if keys is None else keys
        if keys.shape != (*memory.shape[:2], self.to_key.out_features):
            raise ValueError(
                f"keys must be to_key(memory), of shape "
                f"{(*memory.shape[:2], self.to_key.out_features)}, got {tuple(keys.shape)}"
            )
        pairs = self.to_query(query)[:, :, None] + keys[:, None]  # (B, Lq, Lk, A)
        scores = self.to_score(torch.tanh(pairs))[..., 0]  # (B, Lq, Lk)
        weights = masked_softmax(scores[:, None], mask)  # (B, 1, Lq, Lk)
        for listener in self.listeners:
            listener(weights)
        return weights[:, 0] @ memory


# --------------------------------------------------------------------------------- converter


def recurrent_state_from_torch(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the parameters of ``torch.nn.RNN``, ``LSTM`` or ``GRU`` to those of this module.

    Args:
        state: The ``state_dict()`` of one layer, in one direction or two, with biases.

    Returns:
        A state for :class:`RNN`, :class:`LSTM`, :class:`GRU`, or for :class:`Bidirectional` if the
        layer has two directions. The tensors are shared, not copied.

    Raises:
        ValueError: If a name is not one of theirs, or belongs to a second layer or a projection.

    Example:
        >>> theirs = nn.GRU(3, 5, batch_first=True)
        >>> ours = GRU(3, 5)
        >>> ours.load_state_dict(recurrent_state_from_torch(theirs.state_dict()))
        <All keys matched successfully>
    """
    two_way = any(name.endswith("_reverse") for name in state)
    return {_our_name(name, two_way): tensor for name, tensor in state.items()}


def _our_name(name: str, two_way: bool) -> str:
    forwards = name.removesuffix("_reverse")
    if forwards not in _NAMES:
        raise ValueError(
            f"{name} is no parameter of a single layer of torch.nn.RNN, LSTM or GRU; layers are "
            "stacked one by one here, and there is no proj_size"
        )
    if not two_way:
        return _NAMES[forwards]
    direction = "right_to_left" if name.endswith("_reverse") else "left_to_right"
    return f"{direction}.{_NAMES[forwards]}"


_NAMES = {
    "weight_ih_l0": "cell.from_input.weight",
    "weight_hh_l0": "cell.from_state.weight",
    "bias_ih_l0": "cell.from_input.bias",
    "bias_hh_l0": "cell.from_state.bias",
}


# ------------------------------------------------------------------------ sequences, and checks


def _inside(
    lengths: Tensor | None, batch: int, length: int
) -> Bool[Tensor, "batch length 1"] | None:
    """Which steps belong to their sequence; None if all do."""
    if lengths is None:
        return None
    inside = padding_mask(lengths, length)[:, 0, 0, :, None]
    if inside.shape[0] != batch:
        raise ValueError(f"there are {batch} sequences, but {inside.shape[0]} lengths")
    return inside


def _choose(
    inside: Bool[Tensor, "batch 1"], stepped: tuple[Tensor, ...], held: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """The new state where the sequence still runs, the old one where it has ended."""
    return tuple(torch.where(inside, new, old) for new, old in zip(stepped, held, strict=True))


def _reversed(
    x: Float[Tensor, "batch length width"], lengths: Tensor | None
) -> Float[Tensor, "batch length width"]:
    """Each sequence from its last step to its first; its padding stays where it is."""
    if lengths is None:
        return x.flip(1)
    step = torch.arange(x.shape[1], device=x.device)
    end = lengths[:, None]
    order = torch.where(step < end, end - 1 - step, step)  # (B, L)
    return x.gather(1, order[:, :, None].expand_as(x))


def _check_sequence(name: str, x: Tensor, width: int, weight: Tensor) -> None:
    check_floats(name, x)
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(f"{name} must be (batch, length, {width}), got shape {tuple(x.shape)}")
    if x.shape[1] == 0:
        raise ValueError(f"{name} is a sequence of no steps, in shape {tuple(x.shape)}")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"{name} is {x.dtype}, but the layer is {weight.dtype}; convert with .to()")
    if x.device != weight.device:
        raise ValueError(f"{name} is on {x.device}, but the layer is on {weight.device}")


def _check_state(state: tuple[Tensor, ...], cell: nn.Module, batch: int) -> None:
    expected = [(batch, cell.d_hidden)] * cell.n_states
    got = [tuple(part.shape) for part in state]
    if got != expected:
        raise ValueError(f"state must be a tuple of tensors of shapes {expected}, got {got}")


def _check_one_head(mask: Tensor) -> None:
    check_mask(mask)
    if mask.shape[1] != 1:
        raise ValueError(
            f"additive attention has one head, so mask must be (batch, 1, q_len, k_len), got shape "
            f"{tuple(mask.shape)}"
        )
