"""Our GPT, Hugging Face's GPT-2 (sdpa) and the layout of nanoGPT, with equal weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlib.models.gpt import GPT, GPTConfig, gpt_state_from_hugging_face


def gpt_pair(config: GPTConfig) -> tuple[GPT, nn.Module]:
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.max_len,
            n_embd=config.d_model,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            n_inner=config.d_ff,
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.dropout,
            attn_implementation="sdpa",
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    ours = GPT(config)
    ours.load_state_dict(gpt_state_from_hugging_face(theirs.state_dict()))
    return ours, theirs


class NanoGPT(nn.Module):
    """One projection to queries, keys and values, as in nanoGPT; the other weights are shared."""

    def __init__(self, ours: GPT) -> None:
        super().__init__()
        self.tokens, self.positions = ours.tokens, ours.positions.encoding
        self.norm, self.dropout, self.n_heads = ours.norm, ours.config.dropout, ours.config.n_heads
        self.layers = ours.layers
        self.fused = nn.ParameterList()
        for layer in ours.layers:
            a = layer.attention
            three = (a.to_query, a.to_key, a.to_value)
            self.fused.append(torch.cat([to.weight.detach() for to in three]))
            self.fused.append(torch.cat([to.bias.detach() for to in three]))

    def forward(self, ids: Tensor) -> Tensor:
        x = self._drop(self.tokens(ids) + self.positions[: ids.shape[1]])
        for i, layer in enumerate(self.layers):
            y = F.linear(layer.around_attention.norm(x), self.fused[2 * i], self.fused[2 * i + 1])
            q, k, v = y.unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
            dropout = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
            x = x + self._drop(layer.attention.to_output(y.transpose(1, 2).flatten(2)))
            x = x + self._drop(layer.feed_forward(layer.around_feed_forward.norm(x)))
        return F.linear(self.norm(x), self.tokens.weight)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)
