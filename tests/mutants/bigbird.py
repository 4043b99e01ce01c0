"""Faults in BigBird's layout and in attention by blocks."""

from mutants import Mutant

MODULE = "attnlib.efficient.bigbird"
TESTS = ["test_bigbird.py"]
MUTANTS = [
    Mutant(
        "bigbird_layout",
        "random blocks are those seen anyway",
        ".masked_fill(layout, 2.0)",
        "",
        "some rows get no further block",
    ),
    Mutant(
        "bigbird_layout",
        "global blocks see, but are not seen",
        "        layout[block] = layout[:, block] = True\n",
        "        layout[block] = True\n",
        "half of what global means",
    ),
    Mutant(
        "bigbird_layout",
        "the seed is ignored",
        "generator=generator",
        "generator=None",
        "an argument that is not used",
    ),
    Mutant(
        "bigbird_layout",
        "all rows draw the same",
        "order = torch.rand(n_blocks, n_blocks, generator=generator)",
        "order = torch.rand(1, n_blocks, generator=generator).expand(n_blocks, -1)",
        "one draw for all: the graph has no short paths",
    ),
    Mutant(
        "bigbird_layout",
        "the window is twice as wide",
        "<= window_blocks // 2\n",
        "< window_blocks\n",
        "a radius for a width",
    ),
    Mutant(
        "layout_mask",
        "rows and columns change places",
        "    return layout[block][:, block][None, None]\n",
        "    return layout.T[block][:, block][None, None]\n",
        "a layout need not be symmetric",
    ),
    Mutant(
        "layout_mask",
        "tokens are dealt out",
        "    block = torch.arange(length, device=layout.device) // block_size\n",
        "    block = torch.arange(length, device=layout.device) % len(layout)\n",
        "a remainder for a quotient",
    ),
    Mutant(
        "layout_mask",
        "any layout passes",
        "    _check_layout(layout, block_size, length)\n    block",
        "    block",
        "a layout that is too large gives a mask all the same",
    ),
    Mutant(
        "block_sparse_attention",
        "the filling of the last block is seen",
        "    hidden = ~_in_blocks(seen, block_size)\n",
        "    hidden = _in_blocks(~seen, block_size)\n",
        "zeros for False: the filling says it is not hidden",
    ),
    Mutant(
        "block_sparse_attention",
        "gradients overwrite each other",
        "            total.index_add_(0, columns.flatten(), part.view(-1, *total.shape[1:]))\n",
        "            total.index_copy_(0, columns.flatten(), part.view(-1, *total.shape[1:]))\n",
        "a block of keys is seen by many",
    ),
    Mutant(
        "block_sparse_attention",
        "the mask is lost backward",
        "        weights = _weights_(scores, hidden, columns)\n",
        "        weights = _weights_(scores, None, columns)\n",
        "the forward pass is right, so nothing shows but in training",
    ),
    Mutant(
        "block_sparse_attention",
        "the first rows for all",
        "        rows = (count == n).nonzero().squeeze(-1)\n",
        "        rows = (count >= n).nonzero().squeeze(-1)[: int((count == n).sum())]\n",
        "blocks of queries are answered in another's place",
    ),
]
