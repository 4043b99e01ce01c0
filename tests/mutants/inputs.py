"""Faults in what models check, and in who sees whom."""

from mutants import Mutant

MODULE = "attnlib.models.inputs"
TESTS = ["test_model_inputs.py"]
MUTANTS = [
    Mutant(
        "check_ids",
        "one text without a batch passes",
        "    if ids.ndim != 2 or 0 in ids.shape:\n",
        "    if ids.ndim > 2 or 0 in ids.shape:\n",
        "what comes out of a tokenizer for a single text",
    ),
    Mutant(
        "check_ids",
        "no tokens pass",
        "    if ids.ndim != 2 or 0 in ids.shape:\n",
        "    if ids.ndim != 2:\n",
        "the error comes later, and speaks of something else",
    ),
    Mutant(
        "check_ids",
        "the name is not said",
        'f"{name} must be (batch, length) with',
        'f"ids must be (batch, length) with',
        "source or target: the reader has to guess",
    ),
    Mutant(
        "encoder_mask",
        "padding is seen",
        "    return _hide_padding((batch, n_heads, length, length), padding, mask)\n",
        "    return _hide_padding((batch, n_heads, length, length), None, mask)\n",
        "an argument that stays behind",
    ),
    Mutant(
        "encoder_mask",
        "padding replaces the caller's mask",
        "    return real if mask is None else mask & real\n",
        "    return real\n",
        "right as long as only one of them is given",
    ),
    Mutant(
        "encoder_mask",
        "the caller's mask replaces padding",
        "    return real if mask is None else mask & real\n",
        "    return real if mask is None else mask\n",
        "right as long as only one of them is given",
    ),
    Mutant(
        "encoder_mask",
        "padding is taken for length",
        "(k_len - padding).clamp(min=0)",
        "padding.clamp(max=k_len)",
        "what hides the others",
    ),
    Mutant(
        "encoder_mask",
        "a mask for other heads passes",
        "        _check_fits(mask, shape)\n",
        "        check_mask(mask)\n",
        "PyTorch's own words about it are hard to read",
    ),
    Mutant(
        "decoder_mask",
        "padding replaces the causal mask",
        "    return causal if mask is None else causal & mask\n",
        "    return causal if mask is None else mask\n",
        "the classic: a padded batch sees the future",
    ),
    Mutant(
        "decoder_mask",
        "the causal mask replaces padding",
        "    return causal if mask is None else causal & mask\n",
        "    return causal\n",
        "a mask that is made and not used",
    ),
    Mutant(
        "decoder_mask",
        "two tokens need no causal mask",
        "    if q_len == 1:  #",
        "    if q_len <= 2:  #",
        "off by one: only texts of two tokens, or pieces of two with a cache, leak",
    ),
    Mutant(
        "decoder_mask",
        "a single token sees all, padding too",
        "        return mask\n    causal =",
        "        return None\n    causal =",
        "it needs no causal mask, so it needs none",
    ),
    Mutant(
        "decoder_mask",
        "a piece of text sees no cached token",
        "causal_mask(q_len, k_len, device=ids.device)",
        "causal_mask(k_len, device=ids.device)[:, :, :q_len]",
        "aligned to the top left",
    ),
    Mutant(
        "decoder_mask",
        "a prompt that is shorter than the padding is refused",
        "(k_len - padding).clamp(min=0)",
        "(k_len - padding)",
        "only a prompt read in pieces shows it",
    ),
    Mutant(
        "decoder_mask",
        "padding below 0 passes",
        "(padding < 0).any()",
        "(padding < -1).any()",
        "an offset with the wrong sign",
    ),
    Mutant(
        "cache_of_each",
        "a cache of another model passes",
        "    if len(cache.layers) != len(layers):\n",
        "    if False:\n",
        "zip would say it in other words, or, not being strict, not at all",
    ),
    Mutant(
        "cache_of_each",
        "a larger cache passes",
        "    if len(cache.layers) != len(layers):\n",
        "    if len(cache.layers) < len(layers):\n",
        "there is a cache for each layer, after all",
    ),
    Mutant(
        "cache_of_each",
        "all layers share the first cache",
        "    return cache.layers\n",
        "    return cache.layers[:1] * len(layers)\n",
        "one object where there should be many",
    ),
]
