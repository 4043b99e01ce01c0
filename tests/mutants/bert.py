"""Faults in BERT and in reading Hugging Face's weights."""

from mutants import Mutant

MODULE = "attnlib.models.bert"
TESTS = ["test_bert.py"]
NEEDS = ["transformers.models.bert.modeling_bert"]
MUTANTS = [
    Mutant(
        "BertConfig",
        "eps of PyTorch, not of BERT",
        "    eps: float = 1e-12\n",
        "    eps: float = 1e-5\n",
        "nn.LayerNorm's default",
    ),
    Mutant(
        "BertConfig",
        "no dropout unless asked for",
        "    dropout: float = 0.1\n",
        "    dropout: float = 0.0\n",
        "a model to print numbers with, taken for one to train",
    ),
    Mutant(
        "BertConfig",
        "can be changed after the model was made",
        "@dataclass(frozen=True)\n",
        "@dataclass\n",
        "a changed config that its model does not follow",
    ),
    Mutant(
        "BertConfig",
        "the vocabulary of the cased BERT",
        "    vocab_size: int = 30522\n",
        "    vocab_size: int = 28996\n",
        "there are two BERTs",
    ),
    Mutant(
        "Bert",
        "positions after the norm",
        "        x = self.positions(self.tokens(ids) + self.token_types(token_types))\n"
        "        x = self.dropout(self.norm(x))\n",
        "        x = self.norm(self.tokens(ids) + self.token_types(token_types))\n"
        "        x = self.dropout(self.positions(x))\n",
        "the original Transformer has no norm there, so one guesses its place",
    ),
    Mutant(
        "Bert",
        "no token types",
        "self.tokens(ids) + self.token_types(token_types)",
        "self.tokens(ids)",
        "type 0 looks like nothing to add, but has learned weights",
    ),
    Mutant(
        "Bert",
        "all tokens are of type 1 unless told",
        "torch.zeros_like(ids) if token_types is None",
        "torch.ones_like(ids) if token_types is None",
        "counting from 1",
    ),
    Mutant(
        "Bert",
        "GELU by its tanh formula",
        "                activation=nn.GELU(),\n",
        '                activation=nn.GELU(approximate="tanh"),\n',
        "GPT-2's GELU: close enough to go unnoticed without float64",
    ),
    Mutant(
        "Bert",
        "only the first layer is masked",
        "            x = layer(x, mask=mask)\n",
        "            x = layer(x, mask=mask)\n            mask = None\n",
        "a mask that is used up, as in maps computed by hand: layer(x) in a loop",
    ),
    Mutant(
        "Bert",
        "one layer used again and again",
        "        for layer in self.layers:\n",
        "        for layer in [self.layers[0]] * len(self.layers):\n",
        "[layer] * n in place of n layers",
    ),
    Mutant(
        "Bert",
        "no dropout on the embeddings",
        "        x = self.dropout(self.norm(x))\n",
        "        x = self.norm(x)\n",
        "a module that is made and not used",
    ),
    Mutant(
        "Bert",
        "eps does not reach the layers",
        "                eps=config.eps,\n",
        "",
        "an argument that is not passed on",
    ),
    Mutant(
        "bert_state_from_hugging_face",
        "key and value swapped",
        '    "attention.self.key": "attention.to_key",\n',
        '    "attention.self.key": "attention.to_value",\n',
        "one name for another; shapes fit, so nothing complains",
    ),
    Mutant(
        "bert_state_from_hugging_face",
        "the two norms of a layer swapped",
        '    "attention.output.LayerNorm": "around_attention.norm",\n',
        '    "attention.output.LayerNorm": "around_feed_forward.norm",\n',
        "both are called output.LayerNorm there",
    ),
    Mutant(
        "bert_state_from_hugging_face",
        "unknown names pass",
        "    raise ValueError(\n"
        '        f"{name} is no parameter of a BertModel that Bert knows; from a model with a head'
        ' on top "\n        "take the state of its .bert"\n    )\n',
        "    return name\n",
        "a loader that is glad with strict=False",
    ),
    Mutant(
        "bert_state_from_hugging_face",
        "the pooler is kept",
        '        if not name.startswith("pooler.") and name != "embeddings.position_ids"\n',
        '        if name != "embeddings.position_ids"\n',
        "the published weights have one, a fresh BertModel may not",
    ),
    Mutant(
        "bert_state_from_hugging_face",
        "all layers become the first",
        '                return f"layers.{number}.{_LAYER[part]}.{weight_or_bias}"\n',
        '                return f"layers.0.{_LAYER[part]}.{weight_or_bias}"\n',
        "a number that is not carried over",
    ),
]
