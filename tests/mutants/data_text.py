"""Faults in the text and its windows."""

from mutants import Mutant

MODULE = "attnlib.data.text"
TESTS = ["test_data.py"]
NEEDS = ["sklearn.datasets"]
MUTANTS = [
    Mutant(
        "Corpus",
        "validation before training",
        '    training: Int[Tensor, " n"]\n    validation: Int[Tensor, " m"]\n',
        '    validation: Int[Tensor, " m"]\n    training: Int[Tensor, " n"]\n',
        "fields in another order",
    ),
    Mutant(
        "Corpus",
        "validated on what was learned",
        "for x in (training, validation)), vocabulary)",
        "for x in (training, training)), vocabulary)",
        "a copied word",
    ),
    Mutant(
        "Corpus",
        "the vocabulary comes first",
        "return Corpus(*(torch.tensor(part) for part in ids), vocabulary)",
        "return Corpus(vocabulary, *(torch.tensor(part) for part in ids))",
        "a tuple without names",
    ),
    Mutant(
        "character_corpus",
        "all in lower case",
        "vocabulary.encode(x)) for x",
        "vocabulary.encode(x.lower())) for x",
        "a habit from word models",
    ),
    Mutant(
        "character_corpus",
        "paragraphs run together",
        '"\\n".join(paragraphs)',
        '" ".join(paragraphs)',
        "no line ever ends",
    ),
    Mutant(
        "character_corpus",
        "only characters of the training part",
        "sorted(set(training + validation))",
        'sorted(set(training + validation) - {"Z"})',
        "a character that is met later is an error",
    ),
    Mutant(
        "word_corpus",
        "rare words first",
        "key=lambda word: (-counts[word], word)",
        "key=lambda word: (counts[word], word)",
        "a sign",
    ),
    Mutant(
        "word_corpus",
        "paragraphs do not end",
        '(*_WORD.findall(p.lower()), "<eop>")',
        "_WORD.findall(p.lower())",
        "no mark between paragraphs",
    ),
    Mutant(
        "word_corpus",
        "two words for one, by its case",
        "p.lower()",
        "p",
        "The and the: and _WORD knows small letters only",
    ),
    Mutant(
        "word_corpus",
        "room for two words more",
        "ranked[:n_words]",
        "ranked[: n_words + 2]",
        "<unk> and <eop> are not counted",
    ),
    Mutant(
        "prose",
        "other files for validation",
        "parts[number % 10 == 9]",
        "parts[number % 10 == 3]",
        "another split of the same text",
    ),
    Mutant(
        "prose",
        "paragraphs in both parts",
        "for paragraph in parts[1] if paragraph not in parts[0])",
        "for paragraph in parts[1])",
        "a leak from validation to training",
    ),
    Mutant(
        "prose",
        "headings run into the text",
        '_HEADING.sub("", docstring)',
        "docstring",
        "Notes ----- The text",
    ),
    Mutant(
        "prose",
        "in the order of the disk",
        "sorted(path.relative_to(root)",
        "list(path.relative_to(root)",
        "another split on another machine",
    ),
    Mutant(
        "windows",
        "every length-th place",
        "ids.unfold(0, length, 1)",
        "ids.unfold(0, length, length)",
        "a model that always begins at the same places",
    ),
    Mutant(
        "windows",
        "one place for the whole batch",
        "torch.randint(len(stretches), (batch_size,), generator=generator)",
        "torch.randint(len(stretches), (1,), generator=generator).expand(batch_size)",
        "a batch of one, many times",
    ),
    Mutant(
        "windows",
        "drawn from the random numbers of all",
        "(len(stretches), (batch_size,), generator=generator)",
        "(len(stretches), (batch_size,))",
        "a lost argument",
    ),
]
