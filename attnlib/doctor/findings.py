"""What an examination finds: a severity, measured evidence, one cause, and the way out."""

from dataclasses import dataclass, field

FAULT, WARNING, NOTE = "fault", "warning", "note"
SEVERITIES = (FAULT, WARNING, NOTE)  # worst first


@dataclass(frozen=True)
class Finding:
    """One thing that a probe saw.

    ``evidence`` holds what was measured. ``cause`` names the most likely reason, as a short slug;
    ``others`` are the causes that the same evidence would also allow. ``title``, ``fix``,
    ``chapter`` and ``page`` are looked up from the cause.

    Args:
        cause: A key of ``CAUSES``, such as ``"future-leak"``.
        severity: ``"fault"``, ``"warning"`` or ``"note"``.
        evidence: One sentence with the numbers that were measured.
        others: Further causes that fit the evidence.
        probe: The name of the probe that found it, filled in by the examination.

    Raises:
        ValueError: If the cause or the severity is unknown.

    Example:
        >>> finding = Finding("future-leak", "fault", "output 0 moved by 0.3 when input 4 changed")
        >>> finding.title
        'the output at a position depends on later tokens'
        >>> finding.page
        'causal.html#chapter-causal'
        >>> print(finding)
        fault: the output at a position depends on later tokens (future-leak)
    """

    cause: str
    severity: str
    evidence: str
    others: tuple[str, ...] = field(default=())
    probe: str = ""

    def __post_init__(self) -> None:
        for cause in (self.cause, *self.others):
            if cause not in CAUSES:
                raise ValueError(
                    f"no cause is called {cause!r}; take one of attnlib.doctor.CAUSES, or add it "
                    "there with its fix"
                )
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity must be one of {SEVERITIES}; got {self.severity!r}")

    @property
    def title(self) -> str:
        """What is wrong, in words."""
        return CAUSES[self.cause].title

    @property
    def fix(self) -> str:
        """What to do."""
        return CAUSES[self.cause].fix

    @property
    def chapter(self) -> str:
        """Where the book explains it, in words."""
        return CAUSES[self.cause].chapter

    @property
    def page(self) -> str:
        """Where the book explains it, as a link from one of its pages."""
        return PAGES[self.chapter]

    def __str__(self) -> str:
        return f"{self.severity}: {self.title} ({self.cause})"


@dataclass(frozen=True)
class Cause:
    """A known way to go wrong: what it is, what to do, and the chapter that explains it.

    Example:
        >>> CAUSES["future-leak"].chapter
        'Causal attention'
        >>> CAUSES["future-leak"].fix
        'add the triangle: each query may see itself and what came before, nothing after'
        >>> sorted(Cause.__dataclass_fields__)
        ['chapter', 'fix', 'title']
    """

    title: str
    fix: str
    chapter: str


_QKV, _CAUSAL = "Queries, keys and values", "Causal attention"
_CROSS, _MULTI = "Cross-attention", "Multi-head attention"
_POSITIONS, _MODELS = "Positional encoding", "Variants"
_CACHE, _DEBUG = "Causal attention, with a cache", "Debugging"

# Where in the book these are: the page, and the label of a section on it.
PAGES: dict[str, str] = {
    _QKV: "qkv.html#chapter-qkv",
    _CAUSAL: "causal.html#chapter-causal",
    _CROSS: "cross.html#cross-faults",
    _MULTI: "multi_head.html#right-reshape",
    _POSITIONS: "positions.html#chapter-positions",
    _MODELS: "variants.html#five-models",
    _CACHE: "causal.html#cache-alignment",
    _DEBUG: "debugging.html#order-to-look",
}

CAUSES: dict[str, Cause] = {
    # ------------------------------------------------------------------ it does not run
    "raises": Cause(
        "the module raises an error",
        "read the message; it is quoted in the evidence",
        _DEBUG,
    ),
    "heads-do-not-divide": Cause(
        "d_model is not divisible by the number of heads",
        "choose heads that divide d_model, and check it in the constructor",
        _MULTI,
    ),
    "needs-these-sizes": Cause(
        "it runs for some sizes only",
        "look for a mask or table that lines up with another axis, or a squeeze() without an axis",
        _DEBUG,
    ),
    "not-batch-first": Cause(
        "the first axis of the output is not the batch",
        "select along the right axis: h[:, 0] is the first token of each sample, h[0] is a sample",
        _DEBUG,
    ),
    # ------------------------------------------------------------------ not a number
    "nan": Cause("the output is not finite", "look at the operation in the evidence", _DEBUG),
    "nan-row-without-keys": Cause(
        "a query has no key that it may see: its softmax is 0/0",
        "let each query see at least one key, or set the rows of such queries to zero",
        _CAUSAL,
    ),
    "nan-diagonal-hidden": Cause(
        "the triangle hides the diagonal, so the first token may see nothing",
        "hide from one above the diagonal: triu(diagonal=1) is hidden, tril() is visible",
        _CAUSAL,
    ),
    "nan-plus-infinity": Cause(
        "a score is plus infinity, so its whole row is not a number",
        "fill hidden scores with minus infinity: a double minus has slipped in",
        _CAUSAL,
    ),
    "nan-division": Cause(
        "something is divided by zero",
        "guard the divisor: a sample without tokens has a count of 0",
        _DEBUG,
    ),
    "nan-gradient": Cause(
        "the output is finite, but a gradient is not",
        "keep NaN out of the graph: mask before the operation, not after it",
        _DEBUG,
    ),
    "half-overflow": Cause(
        "numbers are too large for half precision",
        "scale q before the product, use masked_fill with finfo(dtype).min, or softmax in float32",
        _DEBUG,
    ),
    "half-masks-added": Cause(
        "finfo.min is added to a score and overflows to minus infinity in half precision",
        "combine the masks as bool and use masked_fill: do not add finfo.min",
        _DEBUG,
    ),
    "half-mask-value": Cause(
        "the mask value does not fit into half precision",
        "fill with torch.finfo(scores.dtype).min or -inf, not with -1e9",
        _DEBUG,
    ),
    "half-mixed-dtypes": Cause(
        "part of the module stays in float32",
        "make tensors with the dtype of the input, or register them as buffers",
        _DEBUG,
    ),
    # ------------------------------------------------------------------ the future
    "future-leak": Cause(
        "the output at a position depends on later tokens",
        "add the triangle: each query may see itself and what came before, nothing after",
        _CAUSAL,
    ),
    "leak-by-one": Cause(
        "every position sees exactly the next token",
        "shift the triangle by one: tril(), not tril(1); or shift the inputs the other way",
        _CAUSAL,
    ),
    "causal-inverted": Cause(
        "the triangle is upside down: the future is visible and the past is not",
        "True means 'may attend' in scaled_dot_product_attention, and 'hidden' in nn.Multihead"
        "Attention; or tril and triu are swapped",
        _CAUSAL,
    ),
    "leak-with-mask": Cause(
        "a future leak that comes with the padding mask, which replaces the causal mask",
        "combine them: allowed = triangle & padding",
        _CAUSAL,
    ),
    "leak-without-mask": Cause(
        "a future leak in the call without a mask: the triangle is applied only if one is passed",
        "build the triangle in every call",
        _CAUSAL,
    ),
    "leak-with-weights": Cause(
        "the output leaks the future when the weights are asked for",
        "use the same mask on both paths",
        _CAUSAL,
    ),
    "leak-in-one-mode": Cause(
        "the output leaks the future in one mode only (train or eval, with or without gradients)",
        "do not let is_causal depend on self.training",
        _CAUSAL,
    ),
    "mask-value-too-small": Cause(
        "a future leak for large activations: the finite mask value is too small to hide",
        "fill with -inf (or finfo.min by masked_fill)",
        _CAUSAL,
    ),
    "mask-value-wrong": Cause(
        "hidden scores are filled with a number near zero, which hides nothing",
        "fill with -inf: 1e-9 is not 1e9",
        _CAUSAL,
    ),
    "leak-through-norm": Cause(
        "tokens are normalised together: the normalisation runs over the sequence axis",
        "normalise over the features of one token: nn.LayerNorm(d_model)",
        _MODELS,
    ),
    "leak-outside-attention": Cause(
        "tokens are coupled outside the attention",
        "look for a pooling, convolution or shift that reads later tokens",
        _MODELS,
    ),
    "mask-after-softmax": Cause(
        "the mask is applied after the softmax, whose denominator still counts hidden keys",
        "mask the scores before the softmax",
        _CAUSAL,
    ),
    "past-ignored": Cause(
        "no output depends on earlier tokens",
        "check the triangle: it may hide everything but the token itself",
        _CAUSAL,
    ),
    "unwanted-causal": Cause(
        "outputs never depend on later tokens: a causal mask in a module meant to look both ways",
        "leave the causal mask out of an encoder",
        _CAUSAL,
    ),
    "prefix-not-visible": Cause(
        "the prefix is meant to be visible to itself, and is causal",
        "or the mask with the block of the prefix",
        _CAUSAL,
    ),
    # ------------------------------------------------------------------ who sees whom
    "no-mixing": Cause(
        "the output of a token depends on no other token: the attention does not mix",
        "check the product of weights and values: its einsum must sum over the keys",
        _QKV,
    ),
    "pairs-never-meet": Cause(
        "some pairs of tokens never influence each other",
        "check mask, window and the way heads are split",
        _MULTI,
    ),
    "own-token-ignored": Cause(
        "an output does not depend on its own token",
        "keep the diagonal visible, and the residual connection",
        _QKV,
    ),
    "ignored-argument": Cause(
        "an argument has no influence on the output",
        "use it, or take it out of the signature",
        _DEBUG,
    ),
    "window-ignored": Cause(
        "tokens farther away than the window influence the output: the window is not applied",
        "hide the keys that are a window or more away",
        _CAUSAL,
    ),
    "window-off-by-one": Cause(
        "the window is one token off",
        "a window of w shows w tokens, the query's own included",
        _CAUSAL,
    ),
    "window-wraps": Cause(
        "the two ends of the sequence influence each other: a cyclic shift wraps around unmasked",
        "hide pairs that are neighbours only because of the roll",
        _CAUSAL,
    ),
    # ------------------------------------------------------------------ padding
    "padding-leak": Cause(
        "padding changes the output of real tokens: the mask does not hide it",
        "hide the padded keys: mask of shape (batch, 1, 1, k_len), added to every score row",
        _QKV,
    ),
    "padding-ignored": Cause(
        "the padding mask has no effect at all",
        "pass the mask on to the attention",
        _QKV,
    ),
    "padding-inverted": Cause(
        "the padding mask is read the wrong way round: real tokens are hidden, padding is read",
        "invert it: True means 'attend' here and 'hidden' in nn.MultiheadAttention",
        _QKV,
    ),
    "padding-on-rows": Cause(
        "the padding mask is broadcast over the query rows: it hides queries in place of keys",
        "shape it (batch, 1, 1, k_len), not (batch, 1, q_len, 1)",
        _QKV,
    ),
    "mask-multiplied": Cause(
        "scores are multiplied by the mask: a hidden score is 0, and exp(0) is 1",
        "masked_fill(~mask, -inf) before the softmax",
        _QKV,
    ),
    "mask-added-as-number": Cause(
        "a mask of ones and zeros is added to the scores as a number",
        "convert it to bool, or to 0 and -inf",
        _QKV,
    ),
    "mask-in-some-layers": Cause(
        "only some of the layers get the padding mask",
        "pass the mask to every layer",
        _MODELS,
    ),
    "padding-after-attention": Cause(
        "the attention hides the padding, and something after it reads it",
        "leave padding out of pooling, normalisation and convolution too",
        _MODELS,
    ),
    "pooling-includes-padding": Cause(
        "the pooled vector includes padding although the attention hides it",
        "divide the sum over real tokens by their number",
        _MODELS,
    ),
    "pooling-wrong-token": Cause(
        "the pooled vector comes from a token that padding can move",
        "take the last real token: its index is the length minus one",
        _MODELS,
    ),
    "mask-head-batch-order": Cause(
        "heads of one sample use the mask of another sample",
        "mask.repeat_interleave(n_heads, 0): the order is batch * heads + head",
        _MULTI,
    ),
    "left-padding-positions": Cause(
        "with padding on the left, positions count the padding too",
        "count positions from the first real token: mask.cumsum(-1) - 1",
        _POSITIONS,
    ),
    "pad-id": Cause(
        "padding tokens are not recognised: the module looks for another id",
        "compare with the tokenizer's own pad id",
        _DEBUG,
    ),
    "stale-state": Cause(
        "an earlier call changes the result of this one: something is kept between calls",
        "keep masks, positions and caches in local variables, or key them by size",
        _DEBUG,
    ),
    "empty-sample": Cause(
        "a sample that is all padding gives NaN",
        "set the output of queries without keys to zero",
        _QKV,
    ),
    "empty-sample-poisons": Cause(
        "a sample that is all padding makes other samples NaN",
        "set the output of queries without keys to zero",
        _QKV,
    ),
    "documents-mix": Cause(
        "documents packed in one row see each other",
        "allowed = causal & (document of query == document of key)",
        _CAUSAL,
    ),
    # ------------------------------------------------------------------ batch
    "samples-mix": Cause(
        "the output of a sample depends on the other samples in the batch",
        "look for an operation over axis 0, or for view() where a transpose is meant",
        _DEBUG,
    ),
    "view-for-transpose": Cause(
        "samples are mixed in a fixed pattern: view or reshape is used in place of transpose",
        "x.transpose(0, 1): view re-cuts the memory",
        _DEBUG,
    ),
    "attends-over-batch": Cause(
        "attention runs over the batch in place of the sequence",
        "batch_first=True, or transpose before and after",
        _DEBUG,
    ),
    "batch-statistics": Cause(
        "a normalisation uses statistics of the whole batch",
        "use LayerNorm, or BatchNorm in eval mode",
        _MODELS,
    ),
    "index-in-batch": Cause(
        "the same sample gives another output at another index of the batch",
        "add positions along the sequence axis: pe[: x.size(1)]",
        _POSITIONS,
    ),
    "wrong-sample": Cause(
        "the output of a sample does not depend on that sample",
        "select along the right axis: h[:, 0] is the first token of each sample, h[0] is a sample",
        _DEBUG,
    ),
    # ------------------------------------------------------------------ order and positions
    "order-invisible": Cause(
        "the order of the tokens is invisible: no positions reach the attention",
        "add positions to the input, or a relative bias or rotation to the attention",
        _POSITIONS,
    ),
    "positions-on-batch": Cause(
        "positions are added along the batch axis",
        "pe[: x.size(1)], broadcast over the batch",
        _POSITIONS,
    ),
    "positions-wrong-axis": Cause(
        "positions are computed, and run along another axis than the sequence (the heads, say)",
        "rotate or add along the sequence axis",
        _POSITIONS,
    ),
    "direction-invisible": Cause(
        "relative positions carry distance without direction: reversed input, reversed output",
        "make the two directions differ: sin(-d) = -sin(d)",
        _POSITIONS,
    ),
    "order-visible": Cause(
        "the order of the tokens changes the output, which was meant not to depend on it",
        "take the positions out, or compare the way heads are split",
        _POSITIONS,
    ),
    "sinusoid-formula": Cause(
        "the table of sinusoids is not shift-consistent: sine and cosine of a pair do not share "
        "one frequency",
        "exponent 2 * (i // 2) / d_model for channel i",
        _POSITIONS,
    ),
    "sinusoid-multiplied": Cause(
        "neighbouring positions are unrelated: frequencies grow where they should shrink",
        "pos / 10000 ** (2i / d_model): divide, do not multiply",
        _POSITIONS,
    ),
    "positions-repeat": Cause(
        "different positions have the same encoding",
        "check the axis and the dtype of the table",
        _POSITIONS,
    ),
    "rotation-not-relative": Cause(
        "scores of rotated queries and keys do not depend on the distance alone",
        "rotate q and k the same way, by the same angles, in one layout of pairs",
        _POSITIONS,
    ),
    "rotation-opposite": Cause(
        "queries and keys are rotated in opposite directions: scores depend on i + j",
        "rotate both by +position",
        _POSITIONS,
    ),
    "rotation-layout": Cause(
        "the rotation changes lengths: sine and cosine are paired with the wrong channels",
        "use one layout, halves or neighbours, for the angles and for the swap",
        _POSITIONS,
    ),
    "rotated-values": Cause(
        "the values are rotated too",
        "rotate q and k alone",
        _POSITIONS,
    ),
    "distance-rewarded": Cause(
        "the bias grows with the distance: far tokens get more weight than near ones",
        "ALiBi subtracts: bias = -slope * distance",
        _POSITIONS,
    ),
    "score-reads-another-query": Cause(
        "the score of (i, j) depends on another query: the relative shift wraps into the next row",
        "gather with an index matrix, or keep a row for each of the 2 * length - 1 distances",
        _POSITIONS,
    ),
    # ------------------------------------------------------------------ scores and weights
    "scale-missing": Cause(
        "scores are not divided by sqrt(d_head)",
        "multiply them by d_head ** -0.5, unless the architecture says otherwise (T5)",
        _QKV,
    ),
    "scale-inverted": Cause(
        "scores are multiplied by sqrt(d_head): the scale is inverted",
        "multiply by d_head ** -0.5, or divide by d_head ** 0.5",
        _QKV,
    ),
    "scale-doubled": Cause(
        "scores are divided by sqrt(d_head) twice: the scale is 1/d_head",
        "scale once: scaled_dot_product_attention does it already (muP wants 1/d_head)",
        _QKV,
    ),
    "scale-by-d-model": Cause(
        "scores are divided by sqrt(d_model), not by sqrt(d_head)",
        "divide by the square root of the width of one head",
        _MULTI,
    ),
    "scale-other": Cause(
        "the scale of the scores is not 1/sqrt(d_head), and nobody declared it",
        "declare it with scale=..., or divide by sqrt(d_head)",
        _QKV,
    ),
    "softmax-over-queries": Cause(
        "weights sum to 1 over the queries, not over the keys: softmax on the wrong axis",
        "softmax(dim=-1): over the keys",
        _QKV,
    ),
    "softmax-over-heads": Cause(
        "weights sum to 1 over the heads: softmax on the head axis",
        "softmax(dim=-1): over the keys",
        _MULTI,
    ),
    "softmax-over-batch": Cause(
        "weights sum to 1 over the batch: softmax on the batch axis",
        "softmax(dim=-1): over the keys",
        _QKV,
    ),
    "softmax-singleton": Cause(
        "the softmax runs over an axis of length one: all weights are exactly 1",
        "softmax over the axis of the tokens",
        _QKV,
    ),
    "softmax-twice": Cause(
        "a softmax is taken of a softmax: the weights are almost uniform",
        "one softmax: a loss that expects logits wants no softmax before it",
        _QKV,
    ),
    "weights-are-logs": Cause(
        "the weights are logarithms of weights",
        "softmax, not log_softmax",
        _QKV,
    ),
    "rows-not-one": Cause(
        "weights do not sum to 1 over the keys",
        "divide by the sum, if they are meant to be a softmax",
        _QKV,
    ),
    "weights-change-output": Cause(
        "asking for the weights changes the output",
        "compute output and weights from the same scores and the same mask",
        _DEBUG,
    ),
    "weights-not-used": Cause(
        "the weights that are returned are not the weights that were used",
        "return the very tensor that multiplies the values",
        _DEBUG,
    ),
    "unnormalised": Cause(
        "constant values do not come out constant: the context grows with the position",
        "divide by the sum of the weights",
        _QKV,
    ),
    # ------------------------------------------------------------------ modes and state
    "dropout-in-eval": Cause(
        "two calls in eval mode differ: dropout is on",
        "dropout_p=self.p if self.training else 0.0; F.dropout(x, p, self.training)",
        _DEBUG,
    ),
    "eval-changes-train": Cause(
        "a pass in eval mode changes the module: dropout stays off afterwards",
        "use a local variable; do not assign to self in forward",
        _DEBUG,
    ),
    "dropout-missing": Cause(
        "dropout was promised, and train mode is deterministic",
        "apply the dropout that is configured",
        _DEBUG,
    ),
    "modes-differ": Cause(
        "train and eval mode, or calls with and without gradients, give different outputs",
        "look for a branch on self.training or on grad mode",
        _DEBUG,
    ),
    "input-changed": Cause(
        "the module writes into its input",
        "no in-place operation on an argument",
        _DEBUG,
    ),
    # ------------------------------------------------------------------ cache
    "cache-mismatch": Cause(
        "decoding with the cache differs from the full pass",
        "compare keys, positions and mask of one step with the row of the full pass",
        _CACHE,
    ),
    "cache-mask-alignment": Cause(
        "with the cache a new query does not see all earlier keys: the triangle is aligned "
        "top-left",
        "align bottom-right: query i of n new ones sees keys up to k_len - n + i",
        _CACHE,
    ),
    "cache-leak": Cause(
        "with the cache, tokens of one chunk see later tokens of the chunk",
        "keep the triangle among the new tokens",
        _CACHE,
    ),
    "cache-positions": Cause(
        "positions start again at 0 with the cache: the offset is ignored",
        "positions = past length + arange(new)",
        _CACHE,
    ),
    "cache-positions-upper": Cause(
        "the position offset is wrong in the layers above the first",
        "read the past length once per step, or per layer",
        _CACHE,
    ),
    "cache-not-used": Cause(
        "the cached keys are lost or doubled",
        "append the new keys to the old ones, once, along the key axis",
        _CACHE,
    ),
    # ------------------------------------------------------------------ heads
    "heads-cut-across-tokens": Cause(
        "heads are cut across tokens: view without transpose",
        "view(batch, length, heads, d_head).transpose(1, 2)",
        _MULTI,
    ),
    "heads-merged-wrong": Cause(
        "heads are merged without moving them back: outputs of several tokens are mixed",
        "transpose(1, 2) before reshape(batch, length, d_model)",
        _MULTI,
    ),
    "heads-see-own-slice": Cause(
        "the input is cut into heads first: each head sees its own slice, through one small "
        "projection that all share",
        "project with Linear(d_model, d_model), then split",
        _MULTI,
    ),
    "heads-are-copies": Cause(
        "all heads are the same",
        "give each head its own projection",
        _MULTI,
    ),
    "kv-groups-differ": Cause(
        "keys and values are repeated for the query heads in different orders",
        "repeat_interleave both",
        _MULTI,
    ),
    "kv-heads-differ": Cause(
        "the number of different key and value heads is not the one that was promised",
        "check how k and v are repeated",
        _MULTI,
    ),
    # ------------------------------------------------------------------ parameters
    "unused-parameters": Cause(
        "parameters have no influence on the output",
        "apply the layer that was created, or delete it",
        _MODELS,
    ),
    "parameters-cut-off": Cause(
        "parameters influence the output and get no gradient",
        "take out detach(), .data, no_grad() or a rounding",
        _MODELS,
    ),
    "parameters-frozen": Cause(
        "parameters do not ask for a gradient",
        "requires_grad=True, unless they are frozen on purpose",
        _MODELS,
    ),
    "unregistered": Cause(
        "layers, parameters or tensors are not registered: parameters(), to() and eval() miss them",
        "nn.ModuleList, nn.ModuleDict, nn.ParameterList or register_buffer",
        _MODELS,
    ),
    "layers-shared": Cause(
        "several layers are one object with one set of weights",
        "build one module per layer; say shared_layers=True if it is meant (ALBERT)",
        _MODELS,
    ),
    "layers-identical": Cause(
        "several layers start with the same weights",
        "initialise each layer anew: deepcopy copies the weights",
        _MODELS,
    ),
    "zero-gate": Cause(
        "at initialisation a gate of zero closes the branch",
        "nothing: the gate opens in training (ReZero, LayerScale)",
        _MODELS,
    ),
    # ------------------------------------------------------------------ residuals, norms, cross
    "residual-lost": Cause(
        "without the attention nothing of the token is left: the residual connection is missing",
        "x = x + attention(x)",
        _MODELS,
    ),
    "residual-normed": Cause(
        "the residual connection carries the normalised input instead of the input",
        "x = x + f(norm(x)), with norm(x) under another name",
        _MODELS,
    ),
    "ffn-residual-lost": Cause(
        "without the feed-forward part nothing is left: its residual connection is missing",
        "x = x + ffn(x)",
        _MODELS,
    ),
    "norm-over-sequence": Cause(
        "tokens are normalised together: the normalisation runs over the sequence axis",
        "normalise over the features of one token: nn.LayerNorm(d_model)",
        _MODELS,
    ),
    "norm-not-applied": Cause(
        "the promised normalisation of queries and keys is not applied",
        "apply q_norm and k_norm before the product",
        _QKV,
    ),
    "memory-ignored": Cause(
        "the output does not depend on the memory: cross-attention takes its keys and values from "
        "elsewhere",
        "queries from the decoder, keys and values from the encoder",
        _CROSS,
    ),
    "memory-truncated": Cause(
        "some positions of the memory influence no output: cross-attention sees part of it",
        "cross-attention needs no window and no triangle",
        _CROSS,
    ),
    "memory-order": Cause(
        "the order of the memory changes the output of the attention that reads it",
        "give each key and value its own row of the memory; its positions are already inside",
        _CROSS,
    ),
    "memory-padding-leak": Cause(
        "padding of the memory changes the output",
        "hide the padded keys of the memory with the memory's own mask",
        _CROSS,
    ),
    "memory-mask-from-target": Cause(
        "cross-attention uses the padding mask of the target: padding of the source leaks, real "
        "source tokens are ignored",
        "the key mask of cross-attention comes from the source",
        _CROSS,
    ),
    "queries-from-memory": Cause(
        "the output follows the memory: queries and keys of cross-attention are swapped",
        "queries from the decoder, keys and values from the encoder",
        _CROSS,
    ),
    # ------------------------------------------------------------------ labels
    "labels-not-shifted": Cause(
        "each position is graded on its own token: copying the input is the best answer",
        "compare logits[:, :-1] with labels[:, 1:]",
        _CAUSAL,
    ),
    "labels-shifted-twice": Cause(
        "labels are shifted by more than one token",
        "shift once: in the data or in the loss",
        _CAUSAL,
    ),
    "labels-of-padding": Cause(
        "padded positions count in the loss",
        "give them the ignored label, and divide by the number of the others",
        _CAUSAL,
    ),
    # ------------------------------------------------------------------ just to say
    "observed": Cause("an observation, not a complaint", "nothing to do", _DEBUG),
}
