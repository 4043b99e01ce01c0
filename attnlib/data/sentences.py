"""English sentences with their Chinese translations, from a small grammar."""

from itertools import product
from typing import NamedTuple


class SentencePair(NamedTuple):
    """A sentence in two languages, as words, and which word stands for which.

    ``alignment`` holds pairs (number of the English word, number of the Chinese word).

    Example:
        >>> pair = SentencePair(("every", "day"), ("每天",), ((0, 0), (1, 0)))
        >>> [(pair.english[i], pair.chinese[j]) for i, j in pair.alignment]
        [('every', '每天'), ('day', '每天')]
    """

    english: tuple[str, ...]
    chinese: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]


class Translations(NamedTuple):
    """Sentence pairs to learn from, and others to find out what was learned.

    Example:
        >>> data = translations()
        >>> len(data.training), len(data.held_back)
        (938, 238)
    """

    training: list[SentencePair]
    held_back: list[SentencePair]


# A phrase is a list of "english=chinese" in an order that both languages share; "_" joins words
# that stand for each other as a group. A subject also says which form of the verb it takes.
_SUBJECTS = {
    "i=我": 0,
    "you=你": 0,
    "we=我们": 0,
    "they=他们": 0,
    "my=我_的 friends=朋友": 0,
    "she=她": 1,
    "the_teacher=老师": 1,
}
_OBJECTS = (
    "machine=机器 learning=学习",
    "machine=机器 translation=翻译",
    "deep=深度 learning=学习",
    "mathematics=数学",
    "music=音乐",
    "classical=古典 music=音乐",
    "history=历史",
    "chinese=中国 history=历史",
)
_STATES = (("love=热爱", "loves=热爱"), ("like=喜欢", "likes=喜欢"))
_ACTIONS = (
    ("study=研究", "studies=研究"),
    ("discuss=讨论", "discusses=讨论"),
    ("teach=教", "teaches=教"),
)
# What may surround the verb: (in front of it, degree, place, time), as English orders them.
_AROUND_STATES = (("",) * 4, ("also=也", "", "", ""), ("", "very_much=非常", "", ""))
_AROUND_ACTIONS = (
    ("",) * 4,
    ("often=经常", "", "", ""),
    ("", "", "at=在 home=家", ""),
    ("", "", "", "every_day=每天"),
    ("", "", "at=在 school=学校", "every_day=每天"),
)


def translations() -> Translations:
    """Make English sentences and their Chinese translations from a small grammar.

    English says *they discuss music at school every day*, Chinese 他们 每天 在 学校 讨论 音乐: time
    and place go before the verb, time first, and so does the degree (*very much*, 非常). Some words
    stand for two (*my*, 我 的), some two for one (*every day*, 每天).

    Each verb goes with each object, but one in five of these combinations is held back with all its
    sentences: their words are all in the training sentences, the verb with the object never is.
    *I love machine learning* is among those held back.

    Returns:
        Pairs of lower-case English words and Chinese words, always in the same order.

    Example:
        >>> pair = translations().held_back[2]
        >>> print(*pair.english, "→", *pair.chinese)
        i love machine learning very much → 我 非常 热爱 机器 学习
        >>> pair.alignment
        ((0, 0), (1, 2), (2, 3), (3, 4), (4, 1), (5, 1))
    """
    sentences = Translations([], [])
    verbs = [(verb, _AROUND_STATES) for verb in _STATES]
    verbs += [(verb, _AROUND_ACTIONS) for verb in _ACTIONS]
    for (v, (verb, settings)), (o, thing) in product(enumerate(verbs), enumerate(_OBJECTS)):
        goal = sentences.held_back if (v + o) % len(verbs) == 0 else sentences.training
        for (subject, form), (front, degree, place, time) in product(_SUBJECTS.items(), settings):
            english = (subject, front, verb[form], thing, degree, place, time)
            chinese = (subject, front, time, place, degree, verb[form], thing)
            goal.append(_sentence_pair(english, chinese))
    return sentences


def _sentence_pair(english: tuple[str, ...], chinese: tuple[str, ...]) -> SentencePair:
    """Join phrases, given in the order of each language, and note which words belong together."""
    english_words, english_places = _lay_out(english, side=0)
    chinese_words, chinese_places = _lay_out(chinese, side=1)
    links = [
        link
        for group, places in english_places.items()
        for link in product(places, chinese_places[group])
    ]
    return SentencePair(english_words, chinese_words, tuple(sorted(links)))


def _lay_out(
    phrases: tuple[str, ...], side: int
) -> tuple[tuple[str, ...], dict[tuple[str, int], range]]:
    """The words of one language, and the places that each group of words takes."""
    words: list[str] = []
    places = {}
    for phrase in phrases:
        for number, group in enumerate(phrase.split()):
            new = group.split("=")[side].split("_")
            places[phrase, number] = range(len(words), len(words) + len(new))
            words += new
    return tuple(words), places
