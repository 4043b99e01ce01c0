"""The puzzles of the pattern lab, and the judge, who asks only what a mask does."""

from jaxtyping import Bool
from torch import Tensor

from attnlib.masks import receptive_field
from attnlib.widgets.recipes import masks_of, read_recipe

# What a puzzle asks for is judged by what the mask does. Each check has its words, its kind (see
# _misses) and what that kind needs.
PUZZLES = {
    "1 The window that sees the future": {
        "text": "This should be a GPT in which each token sees itself and the three before it. "
        "Somebody chose the wrong word.",
        "length": 16,
        "start": "window 3 or causal",
        "checks": [
            ["Nobody sees the future.", "only", "causal"],
            ["Nobody looks back further than three.", "only", "window 3"],
            ["Everyone sees itself and the three before it.", "all", "causal and window 3"],
        ],
        "hint": "“or” lets more through, “and” less. Which of them does a window need?",
    },
    "2 A global token in a GPT": {
        "text": "A GPT with a short window gets one global token at the front, so that everyone "
        "can see it. It must not see the future itself.",
        "length": 16,
        "start": "causal and window 2 or global 1",
        "checks": [
            ["Nobody sees the future.", "only", "causal"],
            ["Everyone sees the first token.", "all", "global 1 and causal"],
            ["Everyone sees itself and the two before it.", "all", "window 2 and causal"],
            ["Nothing else is seen.", "only", "window 2 or global 1"],
        ],
        "hint": "The lines work from top to bottom. What the last line lets in, no line takes out.",
    },
    "3 Padding in front": {
        "text": "A GPT writes on from a prompt with 5 tokens of padding in front and 11 of text. "
        "No real token may see the padding, and no row may be empty: it would become NaN.",
        "length": 16,
        "start": "causal",
        "checks": [
            ["Nobody sees the future.", "only", "causal"],
            ["No real token sees padding.", "only", "left_padding 5 or document 5"],
            ["Real tokens see all real ones before them.", "all", "left_padding 5 and causal"],
            ["Every query sees something.", "sighted", ""],
        ],
        "hint": "Take the padding away first. Then let each token see at least itself: a window "
        "has a radius of 0, too.",
    },
    "4 The smallest window": {
        "text": "A GPT of 4 layers reads 32 tokens. Its window shall be as small as can be, and "
        "yet the last token shall have heard of the first one.",
        "length": 32,
        "start": "causal and window 3",
        "checks": [
            ["Nobody sees the future.", "only", "causal"],
            ["After 4 layers the last token has heard of the first.", "heard", [31, 0, 4]],
            ["All look back equally far, where there is room.", "band", ""],
            ["At most 252 pairs.", "pairs", 252],
        ],
        "hint": "A window reaches back by its radius in every layer, and there are 31 steps to go.",
    },
    "5 Two layers, few pairs": {
        "text": "An encoder of 2 layers reads 32 tokens. Everyone shall have heard of everyone, "
        "and at most every tenth pair may be computed.",
        "length": 32,
        "start": "window 3",
        "checks": [
            ["After 2 layers everyone has heard of everyone.", "everyone", 2],
            ["At most 102 of the 1024 pairs.", "pairs", 102],
        ],
        "hint": "Who could carry news from all to all? Then see what the window still adds.",
    },
    "6 A prefix without “prefix”": {
        "text": "The first 6 tokens are a question, and everyone may see all of it. Behind it the "
        "text is causal. Do not use the pattern “prefix”.",
        "length": 16,
        "start": "causal",
        "checks": [
            ["Everyone sees the question.", "all", "not left_padding 6"],
            ["Everyone sees the past.", "all", "causal"],
            ["Nothing else is seen.", "only", "prefix 6"],
            ["The pattern “prefix” is not used.", "without", "prefix"],
        ],
        "hint": "Padding in front hides the first tokens from everyone. What is its opposite?",
    },
}


def misses_of(puzzle: str, recipe: str) -> list[int]:
    """Tell how far each check of a puzzle is from holding; 0 if it holds.

    The mask is made for the length of the puzzle.
    """
    n = PUZZLES[puzzle]["length"]
    mask = masks_of(recipe, n)[-1]
    return [_misses(mask, recipe, *check[1:]) for check in PUZZLES[puzzle]["checks"]]


def _misses(mask: Bool[Tensor, "1 1 n n"], recipe: str, kind: str, needs: object) -> int:
    n = mask.shape[-1]
    match kind:
        case "only":
            return int((mask & ~masks_of(needs, n)[-1]).sum())
        case "all":
            return int((~mask & masks_of(needs, n)[-1]).sum())
        case "sighted":
            return int((~mask.any(-1)).sum())
        case "heard":
            query, key, layers = needs
            return int(~receptive_field(mask, layers)[0, 0, query, key])
        case "everyone":
            return int((~receptive_field(mask, needs)).sum())
        case "band":
            return int((mask[..., 1:, 1:] != mask[..., :-1, :-1]).sum())
        case "pairs":
            return max(int(mask.sum()) - needs, 0)
        case "without":
            return sum(line.kind == needs for line in read_recipe(recipe))
