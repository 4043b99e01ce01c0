"""From what a case says of its intent to what the doctor wants promised. It knows no case by name.

A case is a file with ``build()``, ``example_inputs()`` and an ``intent``: a dict of plain words and
numbers. What is said in words, such as ``"(B,T) bool, True=keep"``, is read here.
"""

import inspect
import re
from typing import Any

from attnlib.doctor import Report, examine

COPIED = {
    "order_matters": "order_matters",
    "window": "window",
    "kv_heads": "kv_heads",
    "heads": "n_heads",
    "n_heads": "n_heads",
    "layers": "n_layers",
    "dropout": "dropout",
    "shared_layers": "shared_layers",
    "qk_norm": "qk_norm",
    "label_offset": "label_offset",
}
READ = {"input", "d_model", "causal", "mask", "cache", "weights", "output", "raises", "shift"}
READ |= {"scale", "dtypes", "prefix", "pad_id", "sinks", "layout", "vocab", "positions", "label"}
DESIGNS = {  # what a case says besides, word by word: causes that are meant
    r"slot|compet|sigmoid|(no|without) softmax|off.?by.?one|sums? to|unnormali[sz]ed|"
    r"softmax.*(quer|slot|head|expert)|differential|retention|linear attention|not normali[sz]ed": (
        "softmax-over-queries",
        "softmax-over-heads",
        "rows-not-one",
        "unnormalised",
    ),
    r"shared?\b|sharing|tied|albert|recurren|universal|siamese": (
        "layers-shared",
        "layers-identical",
    ),
    r"frozen|untrained|not trained|no grad|stop.?grad|detach|fixed (weight|param|key|quer)": (
        "parameters-frozen",
        "parameters-cut-off",
        "unused-parameters",
    ),
    r"stochastic|\bsampl|random": ("dropout-in-eval", "modes-differ"),
    r"symmetric": ("direction-invisible",),
    r"\bconv|(token|time).?shift|token.?mix|smear": (
        "leak-outside-attention",
        "heads-cut-across-tokens",
    ),
    r"\blocal|stride|sparse|dilat|block|global": ("pairs-never-meet",),
    r"stateful|recurren|keeps? (state|memory)|segment.?level|\bxl\b": ("stale-state",),
    r"no residual|without residual|residual (none|outside)": ("residual-lost", "ffn-residual-lost"),
}
IS = r"(true|\b1(\.0?)?)\W*(=|means|:|is|marks|for|at|on)?\s*(a |the )?"
REAL = r"non.?pad|not (a )?pad|not mask|unpad|unmask|keep|kept|real|attend|valid|token|visible|"
REAL += r"allowed|present|word|use[ds]?\b|see"
HIDDEN = r"pad|hid|ignor|mask|block|drop|fill|outside|exclud|skip|empty|blank|invisible|"
HIDDEN += r"not (seen|attend|allowed|used|visible|real)"
SEQUENCE_FIRST = r"\(\s*(T|S|L|seq\w*|time|len\w*)\s*,\s*(B|N|batch\w*)\b"
SEQUENCE_FIRST += r"|seq\w*[ -_]first|time[ -_]first|batch_first'?\s*[=:]\s*False"


def examine_case(build: Any, example_inputs: Any, intent: dict[str, Any], seed: int = 0) -> Report:
    """Examine what a case builds, with its intent turned into promises."""
    module = build()
    args, kwargs = example_inputs()
    names = list(inspect.signature(getattr(module, "forward", module)).parameters)
    promises = {COPIED[k]: v for k, v in intent.items() if k in COPIED and v is not None}
    promises |= who_sees_whom(intent) | reach(intent) | sequences(intent, args, names, kwargs)
    promises |= mask(intent.get("mask"), args, kwargs, names) | pads(intent) | numbers(intent)
    asks = re.match(r"(\w+)=(\w+)", str(intent.get("weights") or ""))
    if asks:
        promises["weights"] = {asks[1]: True}
    kwargs = {k: v for k, v in kwargs.items() if k not in promises.get("weights", {})}
    promises |= cached(str(intent.get("cache") or ""))
    return examine(module, *args, kwargs=kwargs, seed=seed, by_design=designs(intent), **promises)


def who_sees_whom(intent: dict[str, Any]) -> dict[str, Any]:
    """Causal or not; ``"tgt"`` means the decoder's own tokens, ``"prefix"`` all but a prefix."""
    causal, prefix = intent.get("causal"), intent.get("prefix")
    if isinstance(causal, str):
        number = re.search(r"\d+", causal)
        if "prefix" in causal and prefix is None and number:
            prefix = int(number[0])
        causal = not causal.lower().startswith(("no", "bi", "false"))
    promises = {} if causal is None else {"causal": causal}
    if isinstance(prefix, str):
        number = re.search(r"\d+", prefix)
        prefix = int(number[0]) if number else None
    return promises | ({"prefix": prefix} if prefix and prefix is not True else {})


def cached(said: str) -> dict[str, Any]:
    """How to decode: ``forward(x, cache) -> (y, cache)``, or another method."""
    found = re.search(r"(\w+)\(\w+, ?(\w+)(?:=None)?\)\s*->", said)
    if not found:
        return {}
    method, name = found.groups()
    if method in {"forward", "m", "module", "model"}:
        return {"cache": name}
    return {"cache": lambda module, chunk, past: getattr(module, method)(chunk, past)}


def reach(intent: dict[str, Any]) -> dict[str, Any]:
    """Tokens that all may see, and a window with gaps."""
    promises: dict[str, Any] = {}
    everywhere = intent.get("sinks", intent.get("global", intent.get("global_tokens")))
    if isinstance(everywhere, list | tuple) and everywhere:
        everywhere = max(everywhere) + 1
    if type(everywhere) is int:
        promises["sinks"] = everywhere
    if re.search(r"alternat|every (second|other|\d)|layer_types|hybrid|full layer", f"{intent}"):
        promises["window"] = None  # some layers see everything
    gap, window = intent.get("dilation"), intent.get("window")
    if type(gap) is int and type(window) is int:
        promises["window"] = (window - 1) * gap + 1
    return promises


def sequences(
    intent: dict[str, Any], args: tuple, names: list[str], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Which input is the target and which the source, where both are given."""
    kind = str(intent.get("input") or "")
    promises: dict[str, Any] = {}
    if kind.startswith(("src_tgt", "memory_tgt")) and len(args) > 1:
        promises |= {"memory": 0, "main": 1}
    if kind.startswith(("tgt_src", "tgt_memory")) and len(args) > 1:
        promises |= {"memory": 1, "main": 0}
    if kind.startswith("src_tgt") and names[:1] in (["tgt"], ["target"], ["query"], ["x"]):
        promises |= {"memory": 1, "main": 0}
    named = [n for n in kwargs if not re.search("mask|label|pos", n)]
    if kind.startswith(("src_tgt", "memory_tgt")) and not args and len(named) > 1:
        promises |= {"memory": named[0], "main": named[1]}
    if kind.startswith("values"):
        promises["averages"] = True
    if re.search(SEQUENCE_FIRST, f"{kind} {intent}"):
        promises["batch_first"] = False
    return promises


def mask(said: Any, args: tuple, kwargs: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """What the mask means, and where it goes."""
    text = str(said or "").lower()
    if not text:
        return {}
    told = [n for n in names if re.search(rf"\b{n.lower()}\b", text)]
    told = [n for n in told if not re.search("label|target", n)]
    if re.search(r"doc|segment|packed|same (row|sequence)|sequence (id|number|index)", text):
        named = told or [n for n in names if re.search("doc|seg|pack", n)]
        return {"documents": named[0] if named else len(args) - 1}
    promises: dict[str, Any] = {}
    pad = re.search(r"(?:pad(?:ding)?(?:_| )?(?:id|token|idx)?\s*(?:=|is|:)?\s*)(\d+)", text)
    if pad and len(args) == 1 and not kwargs:
        promises["pad_id"] = int(pad[1])
    if re.search(f"{IS}({REAL})", text):
        promises["padding_means"] = "keep"
    elif re.search(f"{IS}({HIDDEN})", text):
        promises["padding_means"] = "hide"
    elif "length" in text:
        promises["padding_means"] = "lengths"
    elif re.search(r"additive|added|-inf", text):
        promises["padding_means"] = "add"
    if "left" in text:
        promises["left_padding"] = True
    given = {*names[: len(args)], *kwargs}
    if len(told) == 1 and told[0] in given and "src" not in text and "memory" not in text:
        promises["padding"] = told[0]
    left_out = [n for n in names[len(args) :] if re.search("keep|mask|pad|valid", n)]
    if "optional" in text and left_out:
        promises["padding"] = left_out[0]
    return promises


def pads(intent: dict[str, Any]) -> dict[str, Any]:
    """The token that is padding, of one sequence or of both."""
    pad = intent.get("pad_id")
    if not isinstance(pad, dict):
        return {"pad_id": pad} if type(pad) is int else {}
    found = {}
    for name, number in pad.items():
        source = name.startswith(("src", "source", "mem", "enc"))
        found["memory_pad_id" if source else "pad_id"] = number
    return found


def numbers(intent: dict[str, Any]) -> dict[str, Any]:
    """The scale, if one was declared, and the types that must work."""
    scale = intent.get("scale")
    promises: dict[str, Any] = {"dtypes": tuple(intent.get("dtypes") or ())}
    if isinstance(scale, int | float) and not isinstance(scale, bool):
        promises["scale"] = float(scale)
    elif scale and not re.search(r"1 ?/ ?sqrt\((d_head|d_k|head_dim|hd)\)$", str(scale)):
        promises["scale"] = True
    return promises


def designs(intent: dict[str, Any]) -> tuple[str, ...]:
    """What is said in other words is a design: it excuses what belongs to it."""
    rest = {k: v for k, v in intent.items() if k not in READ and k not in COPIED}
    text = "; ".join(f"{'no ' if v is False else ''}{k} {v}" for k, v in rest.items()).lower()
    return tuple(c for words, causes in DESIGNS.items() if re.search(words, text) for c in causes)
