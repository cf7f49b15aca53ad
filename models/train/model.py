"""The model, in transformers' own classes, and the two losses it is trained with."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

from attention import register_plain_attention
from batches import IGNORE, PATCH_PROPERTIES, PATCH_SIZE
from scene import COLORS, MODEL_SIZE, PLACES, SHAPES, SIZES

# Like LLaVA 1.5, the features are taken before the last encoder layer; that layer is never run
# in training and keeps its initial weights.
VISION_FEATURE_LAYER = -2
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)
PIXEL_STD = (0.26862954, 0.26130258, 0.27577711)


def create_config(vocabulary_size: int) -> LlavaConfig:
    vision = CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=384,
        projection_dim=128,
        num_hidden_layers=5,
        num_attention_heads=4,
        image_size=MODEL_SIZE,
        patch_size=PATCH_SIZE,
        hidden_act="quick_gelu",
    )
    text = LlamaConfig(
        vocab_size=vocabulary_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    return LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=3,
        image_seq_length=(MODEL_SIZE // PATCH_SIZE) ** 2,
        projector_hidden_act="gelu",
        vision_feature_select_strategy="default",
        vision_feature_layer=VISION_FEATURE_LAYER,
        tie_word_embeddings=False,
    )


def create_generation_config() -> GenerationConfig:
    return GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0, max_new_tokens=128, do_sample=False)


def create_model(vocabulary_size: int) -> LlavaForConditionalGeneration:
    model = LlavaForConditionalGeneration(create_config(vocabulary_size))
    model.set_attn_implementation(register_plain_attention())
    for layer, _, _ in TAUGHT_HEADS:
        model.model.language_model.layers[layer].self_attn.keeps_shares = True
    model.generation_config = create_generation_config()
    return model


class PatchHead(nn.Module):
    """Says what each patch shows; trained along, never shipped."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, sum(PATCH_PROPERTIES.values()))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(features))


def patch_features(model: LlavaForConditionalGeneration, pixels: torch.Tensor) -> torch.Tensor:
    """uint8 [size, 64, 64, 3] -> [size, patches, width]: the feature layer without the CLS row."""
    tower = model.model.vision_tower
    tower = getattr(tower, "vision_model", tower)
    mean = torch.tensor(PIXEL_MEAN) * 255
    std = torch.tensor(PIXEL_STD) * 255
    normalized = ((pixels.float() - mean) / std).permute(0, 3, 1, 2)
    hidden = tower.pre_layrnorm(tower.embeddings(normalized))
    for layer in tower.encoder.layers[: VISION_FEATURE_LAYER + 1]:
        output = layer(hidden, attention_mask=None)
        hidden = output[0] if isinstance(output, tuple) else output
    return hidden[:, 1:]


def patch_loss(logits: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Loss and the share of non-empty patches with every property right.

    Half the weight goes to empty patches, half to the others, which are fewer.
    """
    logits = logits.float()
    shown = classes.amax(dim=1) > 0
    weight = torch.where(shown, 0.5 / shown.sum().clamp(min=1), 0.5 / (~shown).sum().clamp(min=1))
    loss = logits.new_zeros(())
    right = torch.ones_like(shown)
    for part, target in zip(logits.split(tuple(PATCH_PROPERTIES.values()), dim=-1), classes.unbind(dim=1), strict=True):
        each = functional.cross_entropy(part.transpose(1, 2), target, reduction="none")
        loss = loss + (each * weight).sum()
        right &= part.argmax(dim=-1) == target
    return loss, (right & shown).sum().item() / max(1, shown.sum().item())


class LookHead(nn.Module):
    """Says, where an answer starts, which things the question names and where they are; never shipped.

    The words are read from the state before the taught heads, the cells from the one behind them.
    """

    WORDS = (1 + len(SIZES), 1 + len(COLORS), 1 + len(SHAPES))
    CELLS = 1 + len(PLACES)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 2 * sum(self.WORDS))
        self.cell_norm = nn.LayerNorm(width)
        self.cell_out = nn.Linear(width, 2 * self.CELLS)

    def word_loss(self, states: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """states: [lines, width]; words: [lines, 2, 3]."""
        logits = self.out(self.norm(states)).float().split(self.WORDS * 2, dim=-1)
        targets = words.flatten(1).unbind(dim=1)
        return sum(functional.cross_entropy(part, target) for part, target in zip(logits, targets, strict=True))

    def cell_loss(self, states: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """states: [lines, width]; cells: [lines, 2]."""
        logits = self.cell_out(self.cell_norm(states)).float().view(-1, self.CELLS)
        each = functional.cross_entropy(logits, cells.flatten(), ignore_index=IGNORE, reduction="sum")
        return each / (cells != IGNORE).sum().clamp(min=1)


# (decoder layer, head) and which of `Look`'s fields its attention is taught to follow.
TAUGHT_HEADS = ((2, 0, 0), (2, 1, 1), (3, 0, 2))


def look_loss(model: LlavaForConditionalGeneration, look_rows: torch.Tensor, looks: torch.Tensor) -> torch.Tensor:
    """How far the taught heads' attention is from where to look, when an answer starts (mean KL divergence).

    Left to itself the decoder guesses for thousands of steps before it finds out how to look a
    thing up by its colour or shape.
    """
    row, column, first_patch = look_rows.unbind(dim=1)
    patches = first_patch[:, None] + torch.arange(looks.shape[2] - 1)
    columns = torch.cat([torch.zeros_like(first_patch)[:, None], patches], dim=1)
    loss = looks.new_zeros(())
    for layer, head, field in TAUGHT_HEADS:
        shares = model.model.language_model.layers[layer].self_attn.shares
        paid = shares[row, head, column].gather(1, columns).float()
        wanted = looks[:, field]
        loss = loss + (wanted * ((wanted + 1e-6).log() - (paid + 1e-6).log())).sum(dim=1).mean()
    return loss


def answer_loss(
    model: LlavaForConditionalGeneration,
    features: torch.Tensor,
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    branches: torch.Tensor,
    targets: torch.Tensor,
) -> tuple[torch.Tensor, float, tuple[torch.Tensor, ...]]:
    """Mean loss over answer tokens, the share of them that greedy decoding gets right, and the
    states [size, L, width] before and behind the layer of the first taught head."""
    image_rows = model.model.multi_modal_projector(features)
    embeddings = model.get_input_embeddings()(token_ids)
    at_image = (token_ids == model.config.image_token_id).unsqueeze(-1)
    embeddings = embeddings.masked_scatter(at_image, image_rows.to(embeddings.dtype))
    length = token_ids.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    same = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    output = model.model.language_model(
        inputs_embeds=embeddings,
        attention_mask=torch.where(causal & same, 0.0, -30000.0)[:, None],
        position_ids=positions,
        use_cache=False,
        output_hidden_states=True,
    )
    hidden = output.last_hidden_state
    asked = targets != IGNORE
    logits = model.lm_head(hidden[asked]).float()
    wanted = targets[asked]
    loss = functional.cross_entropy(logits, wanted)
    return loss, (logits.argmax(dim=-1) == wanted).float().mean().item(), output.hidden_states[TAUGHT_HEADS[0][0] :][:2]
