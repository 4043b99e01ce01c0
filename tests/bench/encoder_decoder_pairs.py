"""Our encoder-decoders and BERT, and those of PyTorch and Hugging Face with equal weights."""

import dataclasses

import torch
from torch import Tensor, nn

from attnlib.models.bart import Bart, BartConfig, bart_state_from_hugging_face
from attnlib.models.bert import Bert, BertConfig, bert_state_from_hugging_face
from attnlib.models.transformer import Transformer, TransformerConfig, transformer_state_from_torch
from attnlib.positions import sinusoidal_encoding


class TorchTransformer(nn.Module):
    """``nn.Transformer`` between embeddings, positions and a head, as its tutorials use it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = nn.Transformer(
            config.d_model,
            config.n_heads,
            config.n_layers,
            config.n_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.tokens = nn.Embedding(config.source_vocab_size, config.d_model)
        self.head = nn.Linear(config.d_model, config.source_vocab_size, bias=False)
        self.head.weight = self.tokens.weight
        self.dropout = nn.Dropout(config.dropout)
        waves = sinusoidal_encoding(config.max_len, config.d_model)
        self.register_buffer("waves", waves, persistent=False)
        blocked = nn.Transformer.generate_square_subsequent_mask(config.max_len)
        self.register_buffer("blocked", blocked, persistent=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = (
            self.dropout(self.tokens(ids) * ids.new_tensor(self.tokens.embedding_dim).sqrt()
                         + self.waves[: ids.shape[1]])
            for ids in (source, target)
        )  # fmt: skip
        blocked = self.blocked[: target.shape[1], : target.shape[1]]
        return self.head(self.inner(x, y, tgt_mask=blocked, tgt_is_causal=True))

    def state_for_ours(self, theirs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Its parameters, or gradients, under our names."""
        inner = {k.removeprefix("inner."): v for k, v in theirs.items() if k.startswith("inner.")}
        names = ("embed_source.tokens.weight", "embed_target.tokens.weight", "to_logits.weight")
        return transformer_state_from_torch(inner) | dict.fromkeys(names, theirs["tokens.weight"])


def transformer_pair(config: TransformerConfig) -> tuple[Transformer, TorchTransformer]:
    """Our Transformer, with the norm at the end that PyTorch's has, and PyTorch's."""
    ours = Transformer(dataclasses.replace(config, final_norm=True))
    theirs = TorchTransformer(config)
    with torch.no_grad():
        theirs.tokens.weight.copy_(ours.to_logits.weight)
    ours.load_state_dict(theirs.state_for_ours(theirs.state_dict()))
    return ours, theirs


def bart_pair(config: BartConfig) -> tuple[Bart, nn.Module]:
    from transformers import BartConfig as TheirConfig
    from transformers import BartForConditionalGeneration

    theirs = BartForConditionalGeneration(
        TheirConfig(
            vocab_size=config.vocab_size,
            max_position_embeddings=config.max_len,
            encoder_layers=config.n_layers,
            encoder_ffn_dim=config.d_ff,
            encoder_attention_heads=config.n_heads,
            decoder_layers=config.n_layers,
            decoder_ffn_dim=config.d_ff,
            decoder_attention_heads=config.n_heads,
            d_model=config.d_model,
            dropout=config.dropout,
            attn_implementation="sdpa",
        )
    ).train()
    for module in theirs.modules():
        if isinstance(module, nn.Embedding):
            module.padding_idx = None  # the texts have no padding: id 1 is a token like others
    ours = Bart(config)
    ours.load_state_dict(bart_state_from_hugging_face(theirs.state_dict()))
    return ours, theirs


def bert_pair(config: BertConfig) -> tuple[Bert, nn.Module]:
    """Both ready to run, without dropout."""
    from transformers import BertConfig as TheirConfig
    from transformers import BertModel

    theirs = BertModel(
        TheirConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            num_attention_heads=config.n_heads,
            num_hidden_layers=config.n_layers,
            intermediate_size=config.d_ff,
            max_position_embeddings=config.max_len,
            attn_implementation="sdpa",
        ),
        add_pooling_layer=False,
    )
    ours = Bert(config)
    ours.load_state_dict(bert_state_from_hugging_face(theirs.state_dict()))
    return ours.eval(), theirs.eval()
