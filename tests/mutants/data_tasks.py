"""Faults in the toy tasks."""

from mutants import Mutant

MODULE = "attnlib.data.tasks"
TESTS = ["test_data.py"]
NEEDS = ["sklearn.datasets"]
MUTANTS = [
    Mutant(
        "Task",
        "answers before questions",
        '    source: Int[Tensor, "n length"]\n    target: Int[Tensor, "n answer_length"]\n',
        '    target: Int[Tensor, "n answer_length"]\n    source: Int[Tensor, "n length"]\n',
        "fields in another order",
    ),
    Mutant(
        "Task",
        "symbols begin at the last special id",
        "(n, length), generator=_generator(seed)) + N_SPECIAL",
        "(n, length), generator=_generator(seed)) + N_SPECIAL - 1",
        "a symbol that means the end",
    ),
    Mutant(
        "Task",
        "drawn from the random numbers of all",
        "(n, length), generator=_generator(seed))",
        "(n, length))",
        "a lost argument",
    ),
    Mutant(
        "copy_task",
        "the same memory twice",
        "return Task(source, source.clone())",
        "return Task(source, source)",
        "changing one changes the other",
    ),
    Mutant(
        "copy_task",
        "in reverse",
        "return Task(source, source.clone())",
        "return Task(source, source.flip(1))",
        "copied from the function below",
    ),
    Mutant(
        "copy_task",
        "one symbol late",
        "return Task(source, source.clone())",
        "return Task(source, source.roll(1, 1))",
        "shifted already: then the decoder's shift is the second",
    ),
    Mutant(
        "reverse_task",
        "examples in reverse",
        "return Task(source, source.flip(1))",
        "return Task(source, source.flip(0))",
        "the wrong axis",
    ),
    Mutant(
        "reverse_task",
        "one symbol late",
        "return Task(source, source.flip(1))",
        "return Task(source, source.flip(1).roll(1, 1))",
        "off by one",
    ),
    Mutant(
        "reverse_task",
        "not reversed",
        "return Task(source, source.flip(1))",
        "return Task(source, source * 1)",
        "copied from the function above",
    ),
    Mutant(
        "sort_task",
        "in falling order",
        "source.sort(1).values",
        "source.sort(1, descending=True).values",
        "the other order",
    ),
    Mutant(
        "sort_task",
        "places, not symbols",
        "source.sort(1).values",
        "source.sort(1).indices",
        "argsort",
    ),
    Mutant(
        "sort_task",
        "sorts the examples",
        "source.sort(1).values",
        "source.sort(0).values",
        "the wrong axis",
    ),
    Mutant(
        "first_task",
        "a symbol too few",
        "_symbols(n, distance + 1,",
        "_symbols(n, distance,",
        "off by one",
    ),
    Mutant(
        "first_task",
        "asks for the last",
        "source[:, :1].clone()",
        "source[:, -1:].clone()",
        "then nothing has to be kept",
    ),
    Mutant(
        "first_task",
        "asks for the second",
        "source[:, :1].clone()",
        "source[:, 1:2].clone()",
        "counting from 1",
    ),
    Mutant(
        "recall_task",
        "the value of the first key",
        "values.gather(1, asked))",
        "values[:, :1])",
        "always the same place",
    ),
    Mutant(
        "recall_task",
        "a key may come twice",
        "torch.rand(n, n_keys, generator=generator).argsort(1)[:, :n_pairs] + N_SPECIAL",
        "torch.randint(n_keys, (n, n_pairs), generator=generator) + N_SPECIAL",
        "then there is more than one answer",
    ),
    Mutant(
        "recall_task",
        "values look like keys",
        "+ N_SPECIAL + n_keys",
        "+ N_SPECIAL",
        "two alphabets in one",
    ),
    Mutant(
        "recall_task",
        "always asks for the first",
        "asked = torch.randint(n_pairs,",
        "asked = torch.randint(1,",
        "then one value has to be kept",
    ),
]
