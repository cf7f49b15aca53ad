"""Attention for training, which ../train-tools imports too.

At the lengths of these models it is twice as fast to train on a CPU as the fused one.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import AttentionInterface


def register_plain_attention() -> str:
    """Returns the name for `set_attn_implementation`."""
    AttentionInterface.register("plain", plain_attention)
    return "plain"


def plain_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention as two products, which keeps the shares of heads that have `keeps_shares`.

    query, key, value: [size, heads, length, head size]; attention_mask is added to the scores.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = (query * scaling) @ key.transpose(-1, -2)
    if attention_mask is not None:
        scores = scores + attention_mask.to(scores.dtype)
    shares = scores.softmax(dim=-1)
    if module.training and getattr(module, "keeps_shares", False):
        module.shares = shares
    return (shares @ value).transpose(1, 2).contiguous(), None
