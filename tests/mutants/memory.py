"""Faults in counting bytes."""

from mutants import Mutant

MODULE = "attnlib.memory"
TESTS = ["test_memory.py"]
NEEDS = ["torch.utils.checkpoint"]
MUTANTS = [
    Mutant(
        "saved_bytes",
        "what is kept twice counts twice",
        "saved[_address(tensor)] = _here(tensor).untyped_storage()",
        "saved[len(saved)] = tensor.untyped_storage()",
        "the plain sum over a hook's calls",
    ),
    Mutant(
        "saved_bytes",
        "nothing is left out",
        "if _address(tensor) not in known",
        "if True",
        "parameters count as activations",
    ),
    Mutant(
        "saved_bytes",
        "a view hides behind its start",
        "return tensor.device, _here(tensor).untyped_storage().data_ptr()",
        "return tensor.device, tensor.data_ptr()",
        "data_ptr of a tensor is not that of its storage",
    ),
    Mutant(
        "saved_bytes",
        "a view counts as what it shows",
        "saved[_address(tensor)] = _here(tensor).untyped_storage()",
        "saved[_address(tensor)] = tensor.contiguous().clone().untyped_storage()",
        "numel times element_size: but all of the storage stays",
    ),
    Mutant(
        "saved_bytes",
        "buffers count",
        "            yield from thing.buffers()\n",
        "",
        "state that is no parameter is forgotten",
    ),
    Mutant(
        "saved_bytes",
        "parameters count",
        "            yield from thing.parameters()\n",
        "",
        "only the inputs are left out",
    ),
    Mutant(
        "saved_bytes",
        "counts what is given back twice",
        "saved = {}  #",
        "saved = saved_bytes.__dict__  #",
        "counts of earlier calls stay",
    ),
    Mutant(
        "parameter_count",
        "buffers count",
        "return sum(parameter.numel() for parameter in model.parameters())",
        "return sum(p.numel() for p in model.state_dict().values())",
        "a state_dict is more than what is learned",
    ),
    Mutant(
        "parameter_count",
        "shared ones count twice",
        "return sum(parameter.numel() for parameter in model.parameters())",
        "return sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))",
        "tied embeddings",
    ),
    Mutant(
        "parameter_count",
        "counts tensors",
        "return sum(parameter.numel() for parameter in model.parameters())",
        "return len(list(model.parameters()))",
        "a number of tensors, not of numbers",
    ),
    Mutant(
        "parameter_bytes",
        "always float32",
        "parameter.numel() * parameter.element_size()",
        "parameter.numel() * 4",
        "half precision seems to save nothing",
    ),
    Mutant(
        "parameter_bytes",
        "buffers count",
        "sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())",
        "sum(p.numel() * p.element_size() for p in model.state_dict().values())",
        "a state_dict is more than what is learned",
    ),
    Mutant(
        "parameter_bytes",
        "shared ones count twice",
        "sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())",
        "sum(\n"
        "        p.numel() * p.element_size()\n"
        "        for _, p in model.named_parameters(remove_duplicate=False)\n"
        "    )",
        "tied embeddings",
    ),
    Mutant(
        "cache_bytes",
        "keys alone",
        "return 2 * dtype.itemsize * math",
        "return dtype.itemsize * math",
        "the values are forgotten",
    ),
    Mutant(
        "cache_bytes",
        "always float32",
        "return 2 * dtype.itemsize * math",
        "return 2 * 4 * math",
        "an argument that is not used",
    ),
    Mutant(
        "cache_bytes",
        "one sequence",
        '        "batch": batch,\n',
        "",
        "an argument that is not used",
    ),
    Mutant(
        "cache_bytes",
        "negative sizes pass",
        "    check_sizes(at_least=0, **sizes)\n",
        "",
        "a forgotten check: two of them give a plausible number",
    ),
    Mutant(
        "MaskCost",
        "the fields change places",
        "    pairs: int\n    share: float\n",
        "    share: float\n    pairs: int\n",
        "they are filled by their order",
    ),
    Mutant(
        "MaskCost",
        "bytes before operations",
        "    flops: int\n    bytes: int\n",
        "    bytes: int\n    flops: int\n",
        "they are filled by their order",
    ),
    Mutant(
        "MaskCost",
        "a name in the singular",
        "    pairs: int\n",
        "    pair: int\n",
        "whoever asks for the old name gets an error",
    ),
    Mutant(
        "mask_cost",
        "scores alone",
        "4 * d_head * pairs",
        "2 * d_head * pairs",
        "the averages cost as much",
    ),
    Mutant(
        "mask_cost",
        "one head",
        "        pairs *= n_heads\n",
        "        pass\n",
        "an argument that is not used",
    ),
    Mutant(
        "mask_cost",
        "blocks at the edge count whole",
        "        computed = computed[:, :, :q_len, :k_len]",
        "        computed = computed[:, :, :, :]",
        "a share above 1",
    ),
    Mutant(
        "mask_cost",
        "blocks are free where a pair is hidden",
        "max_pool2d(mask.float(), block_size, ceil_mode=True).bool()",
        "~max_pool2d((~mask).float(), block_size, ceil_mode=True).bool()",
        "only blocks without a hole are counted",
    ),
    Mutant(
        "cache_bytes",
        "the window is ignored",
        '        sizes["length"] = min(length, window)\n',
        "        pass\n",
        "an argument that is not used",
    ),
]
