"""Faults in batches of pairs and in vocabularies."""

from mutants import Mutant

MODULE = "attnlib.data.pairs"
TESTS = ["test_data.py"]
NEEDS = ["sklearn.datasets"]
MUTANTS = [
    Mutant(
        "Pairs",
        "the decoder is shown its last label",
        "return self.target[:, :-1]",
        "return self.target",
        "one token longer than the labels",
    ),
    Mutant(
        "Pairs",
        "labels are what is shown",
        "return self.target[:, 1:]",
        "return self.target[:, :-1]",
        "the model copies, with a loss near 0",
    ),
    Mutant(
        "Pairs",
        "lengths before targets",
        '    source_lengths: Int[Tensor, " batch"]\n    target: Int[Tensor, "batch length"]\n',
        '    target: Int[Tensor, "batch length"]\n    source_lengths: Int[Tensor, " batch"]\n',
        "fields in another order",
    ),
    Mutant(
        "pad_pairs",
        "no end",
        "torch.cat([begin, torch.as_tensor(ids), end])",
        "torch.cat([begin, torch.as_tensor(ids)])",
        "generation never stops",
    ),
    Mutant(
        "pad_pairs",
        "no beginning",
        "torch.cat([begin, torch.as_tensor(ids), end])",
        "torch.cat([torch.as_tensor(ids), end])",
        "the first token is never learned",
    ),
    Mutant(
        "pad_pairs",
        "padded with the end",
        "padding_value=PAD",
        "padding_value=EOS",
        "GPT's habit: the loss then counts it",
    ),
    Mutant(
        "shuffled_batches",
        "a smaller batch at the end of a round",
        "range(0, total - batch_size + 1, batch_size)",
        "range(0, total, batch_size)",
        "DataLoader's default",
    ),
    Mutant(
        "shuffled_batches",
        "one order for all rounds",
        "    while True:\n        order = torch.randperm(total, generator=generator)\n",
        "    order = torch.randperm(total, generator=generator)\n    while True:\n",
        "shuffled once",
    ),
    Mutant(
        "shuffled_batches",
        "drawn with replacement",
        "column[order[first : first + batch_size]] for column in pairs",
        "column[torch.randperm(total, generator=generator)[:batch_size]] for column in pairs",
        "and each column in an order of its own",
    ),
    Mutant(
        "shuffled_batches",
        "not shuffled",
        "order = torch.randperm(total, generator=generator)",
        "order = torch.arange(total)",
        "the same kinds of pairs come together",
    ),
    Mutant(
        "Vocabulary",
        "numbered by the alphabet",
        "*dict.fromkeys(words)]",
        "*sorted(set(words))]",
        "also fine, but not what it says",
    ),
    Mutant(
        "Vocabulary",
        "reads on behind the end",
        "            if number == EOS:\n                break\n",
        "            if number == EOS:\n                continue\n",
        "noise behind each sentence",
    ),
    Mutant(
        "Vocabulary",
        "the beginning is a word",
        "if number not in (PAD, BOS):",
        "if number != PAD:",
        "<bos> in the text",
    ),
    Mutant(
        "Vocabulary",
        "unknown words are not named",
        "unknown = [word for word in words if word not in self._ids]",
        "unknown = []",
        "a KeyError in its place",
    ),
]
