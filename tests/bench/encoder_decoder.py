"""A training step of our encoder-decoders against PyTorch's and Hugging Face's; BERT's forward."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from encoder_decoder_pairs import bart_pair, bert_pair, transformer_pair
from measure import Effort, Table, check_equal, time_rounds, training_step
from torch import Tensor, nn

from attnlib.masks import from_attention_mask
from attnlib.memory import saved_bytes
from attnlib.models.bart import BartConfig, bart_state_from_hugging_face
from attnlib.models.bert import BertConfig
from attnlib.models.transformer import TransformerConfig

SIZES = {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024, "max_len": 64}
QUICK = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 32, "max_len": 8}
VOCABULARY = 1024
BATCH = 32
BARS = {"nn.Transformer": {0.0: 0.95, 0.1: 0.77}, "BART (sdpa)": {0.0: 1.0, 0.1: 1.0}}
BERT_SIZES = [(1, 16), (1, 128), (8, 128), (2, 512)]

Loss = Callable[[], Tensor]


def run(effort: Effort, quick: bool) -> list[Table]:
    torch.manual_seed(0)
    return [_training(effort, quick), _bert(effort, quick)]


def _training(effort: Effort, quick: bool) -> Table:
    sizes, batch = (QUICK, 2) if quick else (SIZES, BATCH)
    length, vocabulary = sizes["max_len"], 97 if quick else VOCABULARY
    source, text = (torch.randint(vocabulary, (batch, n)) for n in (length, length + 1))
    table = Table(
        f"Time of a training step over that of the peer; MB kept for the backward pass: 2 x "
        f"{sizes['n_layers']} layers, d {sizes['d_model']}, {batch} pairs of {length} tokens",
        ["peer", "dropout", "peer ms", "ours / peer", "MB: peer", "ours", "rounds"],
    )
    for dropout in (0.0, 0.1):
        options = sizes | {"dropout": dropout}
        pairs = {
            "nn.Transformer": transformer_pair(
                TransformerConfig(vocabulary, vocabulary, **options)
            ),
            "BART (sdpa)": bart_pair(BartConfig(vocabulary, **options)),
        }
        for peer, models in pairs.items():
            losses = [partial(_loss, model, source, text) for model in models]
            if dropout == 0:
                _check_equal_gradients(losses, models)
            kept = [
                saved_bytes(loss, leave_out=[model, source, text]) / 1e6
                for loss, model in zip(losses, models, strict=True)
            ]
            steps = [training_step(loss, model) for loss, model in zip(losses, models, strict=True)]
            rounds = time_rounds(dict(zip(("ours", peer), steps, strict=True)), effort)
            ratio = rounds.ratio("ours", peer)
            table.add(
                peer, dropout, rounds.milliseconds(peer), ratio, f"{kept[1]:.4g}",
                f"{kept[0]:.4g}", rounds.count(),
            )  # fmt: skip
            bar = BARS[peer][dropout]
            table.promise(f"a step with dropout {dropout} over {peer}", ratio.median, bar)
    return table


def _bert(effort: Effort, quick: bool) -> Table:
    sizes = QUICK if quick else SIZES | {"max_len": 512}
    table = Table(
        f"Time of BERT's forward over that of BertModel (sdpa): {sizes['n_layers']} layers, "
        f"d {sizes['d_model']}",
        ["batch x length", "padding", "BertModel ms", "ours / BertModel", "rounds"],
    )
    ours, theirs = bert_pair(BertConfig(97 if quick else VOCABULARY, **sizes))
    ratios = []
    for batch, length in [(1, 4), (2, 8)] if quick else BERT_SIZES:
        ids = torch.randint(97, (batch, length))
        keep = torch.ones_like(ids)
        keep[-1, length // 2 :] = 0
        for padded in (False, True):
            contenders = {
                "ours": partial(_encode, ours, ids, keep if padded else None),
                "BertModel": partial(_encode_theirs, theirs, ids, keep if padded else None),
            }
            check_equal(contenders, 1e-4)
            rounds = time_rounds(contenders, effort)
            ratios.append(rounds.ratio("ours", "BertModel"))
            table.add(
                f"{batch} x {length}", "yes" if padded else "no", rounds.milliseconds("BertModel"),
                ratios[-1], rounds.count(),
            )  # fmt: skip
    table.promise("BERT's forward, the worst", max(ratio.median for ratio in ratios), 1.0)
    return table


@torch.no_grad()
def _encode(model: nn.Module, ids: Tensor, keep: Tensor | None) -> list[Tensor]:
    return [model(ids, mask=None if keep is None else from_attention_mask(keep))]


@torch.no_grad()
def _encode_theirs(model: nn.Module, ids: Tensor, keep: Tensor | None) -> list[Tensor]:
    return [model(ids, attention_mask=keep).last_hidden_state]


def _loss(model: nn.Module, source: Tensor, text: Tensor) -> Tensor:
    if hasattr(model, "generate"):  # Hugging Face's
        logits = model(source, decoder_input_ids=text[:, :-1], use_cache=False).logits
    else:
        logits = model(source, text[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def _check_equal_gradients(losses: list[Loss], models: tuple[nn.Module, nn.Module]) -> None:
    """The losses, and the gradients of what lies at both ends, by our names."""
    names = ("embed_source.tokens.weight", "encoder.0.attention.to_value.weight",
             "decoder.0.feed_forward.widen.bias")  # fmt: skip

    def gradients(loss: Loss, model: nn.Module) -> list[Tensor]:
        value = loss()
        learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(value, learned.values())
        by_name = dict(zip(learned, found, strict=True))
        if hasattr(model, "state_for_ours"):
            by_name = model.state_for_ours(by_name)
        elif hasattr(model, "generate"):
            by_name = bart_state_from_hugging_face(by_name)
        return [value, *(by_name[name] for name in names)]

    pairs = zip(("ours", "peer"), losses, models, strict=True)
    check_equal({name: partial(gradients, loss, model) for name, loss, model in pairs}, 1e-4)
