"""Faults in loading and using the pretrained encoder."""

from mutants import Mutant

MODULE = "attnlib.pretrained"
TESTS = ["test_pretrained.py"]
NEEDS = ["transformers.models.bert.modeling_bert", "sentence_transformers"]
MUTANTS = [
    Mutant(
        "SentenceEncoder",
        "the mean counts padding",
        "        mean = (vectors * real).sum(1) / lengths[:, None]\n",
        "        mean = vectors.mean(1)\n",
        "the commonest fault with sentence vectors: they depend on the batch",
    ),
    Mutant(
        "SentenceEncoder",
        "changes the caller's tokenizer",
        "        self.tokenizer = copy.deepcopy(tokenizer)  #",
        "        self.tokenizer = tokenizer  #",
        "a tokenizer has settings, and they are set in place",
    ),
    Mutant(
        "SentenceEncoder",
        "a number as a sentence passes to the tokenizer",
        "        for sentence in sentences:\n            _check_text(sentence)\n",
        "",
        "TextEncodeInput must be Union[...]: an error about another program",
    ),
    Mutant(
        "SentenceEncoder",
        "padding is added up",
        "real = padding_mask(lengths, vectors.shape[1])[:, 0, 0, :, None]",
        "real = torch.ones(*vectors.shape[:2], 1)",
        "the mean over everything, divided by the right number",
    ),
    Mutant(
        "SentenceEncoder",
        "the vector of [CLS] stands for the sentence",
        "        mean = (vectors * real).sum(1) / lengths[:, None]\n",
        "        mean = vectors[:, 0]\n",
        "BERT's own habit; this model was tuned with the mean",
    ),
    Mutant(
        "SentenceEncoder",
        "padding can be attended to",
        "self.bert(ids, mask=padding_mask(lengths, ids.shape[1]))",
        "self.bert(ids)",
        "a mask that is forgotten in a batch of unequal lengths",
    ),
    Mutant(
        "SentenceEncoder",
        "vectors of any length",
        "        return nn.functional.normalize(mean, dim=-1)\n",
        "        return mean\n",
        "dot products would be no cosines",
    ),
    Mutant(
        "SentenceEncoder",
        "normalises across the batch",
        "        return nn.functional.normalize(mean, dim=-1)\n",
        "        return nn.functional.normalize(mean, dim=0)\n",
        "the wrong axis",
    ),
    Mutant(
        "SentenceEncoder",
        "one string is read letter by letter",
        "        if isinstance(sentences, str):\n",
        "        if False:\n",
        "a string is a sequence of strings",
    ),
    Mutant(
        "SentenceEncoder",
        "long input is not cut",
        "        self.tokenizer.enable_truncation(max_tokens)\n",
        "        self.tokenizer.no_truncation()\n",
        "the published pipeline cuts at 256",
    ),
    Mutant(
        "SentenceEncoder",
        "the tokenizer's own padding stays",
        "        self.tokenizer.no_padding()\n",
        "",
        "tokenizer.json pads all to 128 tokens, and they count as real ones",
    ),
    Mutant(
        "load_minilm",
        "the hash is not compared",
        "    if found != expected:\n",
        "    if False:\n",
        "a check that is switched off for a test and stays so",
    ),
    Mutant(
        "load_minilm",
        "a missing file is not named",
        "    if not file.is_file():\n",
        "    if False:\n",
        "an error without the way out",
    ),
    Mutant(
        "load_minilm",
        "in training mode",
        "MINILM_MAX_TOKENS).eval()",
        "MINILM_MAX_TOKENS)",
        "dropout is on, and no two answers agree",
    ),
    Mutant(
        "load_minilm",
        "512 tokens",
        "MINILM_MAX_TOKENS = 256",
        "MINILM_MAX_TOKENS = 512",
        "its positions go to 512, so nothing complains",
    ),
    Mutant(
        "load_minilm",
        "six heads",
        "MINILM = BertConfig(d_model=384, n_heads=12,",
        "MINILM = BertConfig(d_model=384, n_heads=6,",
        "the weights have the same shapes for any number of heads",
    ),
    Mutant(
        "load_minilm",
        "the weights are not used",
        "    bert.load_state_dict(bert_state_from_hugging_face(",
        "    dict(bert_state_from_hugging_face(",
        "a random encoder has pretty pictures, too",
    ),
    Mutant(
        "load_minilm",
        "the folder is ignored",
        "    folder = _installed_folder() if folder is None else Path(folder)\n",
        "    folder = _installed_folder()\n",
        "an argument that is not used",
    ),
]
