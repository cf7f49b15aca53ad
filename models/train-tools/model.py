"""The model, in transformers' own class, and its losses."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from batches import IGNORE, MATCH

# Behind this folder, whose modules have the same names as some there.
sys.path.append(str(Path(__file__).resolve().parents[1] / "train"))

from attention import register_plain_attention  # noqa: E402

FIRST_WEIGHT = 4  # of an answer's first token, which decides whether to call
OTHER_WEIGHT = 0.1  # of a token that is not the assistant's; repeated names in them teach copying
LOOK_WEIGHT = 0.5
# Layer and head whose attention is taught to go, in this order: from a noun of the question to the
# same noun in a tool's name (MATCH); from the start of a turn and of a call to the noun that the
# question asks for next (SELECT); from each copied token to what it copies (COPY).
TAUGHT_HEADS = ((1, 0), (2, 0), (3, 0))


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
    model.set_attn_implementation(register_plain_attention())
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
