"""The model, in transformers' own class, and its losses."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface, GenerationConfig, LlamaConfig, LlamaForCausalLM

from batches import IGNORE, MATCH

FIRST_WEIGHT = 4  # of an answer's first token, which decides whether to call
OTHER_WEIGHT = 0.1  # of a token that is not the assistant's; repeated names in them teach copying
LOOK_WEIGHT = 0.5
# Layer and head whose attention is taught to go, in this order: from a noun of the question to the
# same noun in a tool's name (MATCH); from the start of a turn and of a call to the noun that the
# question asks for next (SELECT); from each copied token to what it copies (COPY).
TAUGHT_HEADS = ((1, 0), (2, 0), (3, 0))


def plain_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention as two products, which keeps the shares of the taught heads.

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


AttentionInterface.register("plain", plain_attention)


def create_config(vocabulary_size: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=2048,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
        tie_word_embeddings=True,
    )


def create_model(vocabulary_size: int) -> LlamaForCausalLM:
    model = LlamaForCausalLM(create_config(vocabulary_size))
    model.set_attn_implementation("plain")
    for layer, _ in TAUGHT_HEADS:
        model.model.layers[layer].self_attn.keeps_shares = True
    model.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0, max_new_tokens=256, do_sample=False)
    return model


def losses(
    model: LlamaForCausalLM,
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    branches: torch.Tensor,
    targets: torch.Tensor,
    answers: torch.Tensor,
    looks: torch.Tensor,
    sources: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss to train on, and what to report."""
    length = token_ids.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    same = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    hidden = model.model(
        input_ids=token_ids,
        attention_mask=torch.where(causal & same, 0.0, -30000.0)[:, None],
        position_ids=positions,
        use_cache=False,
    ).last_hidden_state
    logits = model.lm_head(hidden).float()
    each = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=IGNORE)
    is_other = (targets != IGNORE) & ~answers
    starts = answers.clone()
    starts[:, 1:] &= ~answers[:, :-1]
    weights = answers + (FIRST_WEIGHT - 1) * starts
    answer = (each * weights).sum() / weights.sum()
    other = (each * is_other).sum() / is_other.sum()
    right = ((logits.argmax(dim=-1) == targets) & answers).sum().item() / answers.sum().item()
    report = {"answer": answer.item(), "right": right, "other": other.item()}
    loss = answer + OTHER_WEIGHT * other
    for what, (layer, head) in enumerate(TAUGHT_HEADS):
        line_is = looks[:, 0] == what
        _, row, column = looks[sources[:, 0]].unbind(dim=1)
        paid = model.model.layers[layer].self_attn.shares[row, head, column, sources[:, 1]].float()
        sums = paid.new_zeros(len(looks)).index_add(0, sources[:, 0], paid)[line_is]
        look = -(sums + 1e-4).log().mean()
        report[("match", "select", "copy")[what]] = look.item()
        loss = loss + LOOK_WEIGHT * look
    return loss, report


assert MATCH == 0
