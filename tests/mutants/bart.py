"""Faults in BART and in reading Hugging Face's weights."""

from mutants import Mutant

MODULE = "attnlib.models.bart"
TESTS = ["test_bart.py", "test_encoder_decoder.py"]
NEEDS = ["transformers.models.bart.modeling_bart"]
MUTANTS = [
    Mutant(
        "BartConfig",
        "scaled unless asked otherwise",
        "    scaled: bool = False  #",
        "    scaled: bool = True  #",
        "as the original Transformer is",
    ),
    Mutant(
        "BartConfig",
        "not tied unless asked for",
        "    tied: bool = True  #",
        "    tied: bool = False  #",
        "100 million parameters more than published",
    ),
    Mutant(
        "BartConfig",
        "the vocabulary of GPT-2",
        "    vocab_size: int = 50265\n",
        "    vocab_size: int = 50257\n",
        "BART's has a few special tokens more",
    ),
    Mutant(
        "Bart",
        "ReLU",
        "activation=nn.GELU(), dropout",
        "dropout",
        "the layers' default",
    ),
    Mutant(
        "Bart",
        "GELU by tanh",
        "activation=nn.GELU(), dropout",
        'activation=nn.GELU(approximate="tanh"), dropout',
        "close enough to go unnoticed without float64",
    ),
    Mutant(
        "Bart",
        "no norm after the embeddings",
        "                norm=nn.LayerNorm(d_model),\n",
        "",
        "as the original Transformer does",
    ),
    Mutant(
        "Bart",
        "never scaled",
        "scale=d_model**0.5 if config.scaled else 1.0",
        "scale=1.0",
        "a switch that does nothing",
    ),
    Mutant(
        "Bart",
        "always scaled",
        "scale=d_model**0.5 if config.scaled else 1.0",
        "scale=d_model**0.5",
        "a switch that does nothing",
    ),
    Mutant(
        "Bart",
        "no dropout on the embeddings",
        "                dropout=dropout,\n            )\n",
        "            )\n",
        "an argument that stays behind",
    ),
    Mutant(
        "Bart",
        "one table, tied or not",
        "target = source if config.tied else nn.Embedding(config.vocab_size, d_model)",
        "target = source",
        "a switch that does nothing",
    ),
    Mutant(
        "Bart",
        "tied by value only",
        "            self.to_logits.weight = source.weight\n",
        "            self.to_logits.weight.data = source.weight.data.clone()\n",
        "equal until the first step",
    ),
    Mutant(
        "Bart",
        "the bias of the logits is learned",
        "        self.to_logits.bias.requires_grad_(False)",
        "        self.to_logits.bias.requires_grad_(True)",
        "what a linear layer does",
    ),
    Mutant(
        "Bart",
        "the head has no bias",
        "to_logits=nn.Linear(d_model, config.vocab_size)",
        "to_logits=nn.Linear(d_model, config.vocab_size, bias=False)",
        "as GPT's head",
    ),
    Mutant(
        "Bart",
        "it starts with large numbers",
        "                nn.init.normal_(module.weight, std=0.02)\n",
        "                nn.init.normal_(module.weight, std=0.2)\n",
        "a zero too few",
    ),
    Mutant(
        "bart_state_from_hugging_face",
        "positions begin in the first row",
        "            tensor = tensor[2:]\n",
        "            tensor = tensor[:-2]\n",
        "the offset that makes everyone stumble once",
    ),
    Mutant(
        "bart_state_from_hugging_face",
        "the table that is shared wins",
        '        if name != "model.shared.weight":\n            ours[_our_name(name)] = tensor\n',
        '        if name != "model.shared.weight":\n'
        "            ours.setdefault(_our_name(name), tensor)\n",
        "right as long as all are tied",
    ),
    Mutant(
        "bart_state_from_hugging_face",
        "a file has all tables",
        '    if "model.shared.weight" in state:\n',
        "    if False:\n",
        "a state has; a file has each one once",
    ),
    Mutant(
        "bart_state_from_hugging_face",
        "self- and cross-attention swapped",
        '        **_attention("encoder_attn", "cross_attention"),\n',
        '        **_attention("encoder_attn", "self_attention"),\n',
        "shapes fit, but one of them is then missing",
    ),
    Mutant(
        "bart_state_from_hugging_face",
        "query and key swapped",
        '{"q_proj": "query", "k_proj": "key", ',
        '{"q_proj": "key", "k_proj": "query", ',
        "one name for another; shapes fit, so nothing complains",
    ),
    Mutant(
        "bart_state_from_hugging_face",
        "all layers become the first",
        'f"{half}.{number}.{_PARTS',
        'f"{half}.0.{_PARTS',
        "a number that is not carried over",
    ),
]
