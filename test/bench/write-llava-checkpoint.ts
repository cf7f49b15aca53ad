/** Writes a LLaVA checkpoint of random weights: CLIP ViT-L/14 at 336 pixels with the bench's decoder, or a larger one. */
import { preprocessorConfig } from "./image-processor.ts";
import { shape } from "./shape.ts";
import type { DecoderSize } from "./shape.ts";
import { decoderConfig, decoderTensors, writeCheckpoint } from "./write-checkpoint.ts";
import type { CheckpointTensor } from "./write-checkpoint.ts";

const tower = {
  hiddenSize: 1024,
  intermediateSize: 4096,
  numLayers: 24,
  numHeads: 16,
  patchSize: 14,
  imageSize: 336,
} as const;

/** The last token of the vocabulary, which no text contains. */
const imageTokenId = shape.vocabSize - 1;

/** Writes the folder unless it exists; returns it. */
export function writeLlavaCheckpoint(folder: string, size: DecoderSize = shape): string {
  return writeCheckpoint(folder, {
    config: {
      architectures: ["LlavaForConditionalGeneration"],
      model_type: "llava",
      image_token_index: imageTokenId,
      projector_hidden_act: "gelu",
      vision_feature_layer: -2,
      vision_feature_select_strategy: "default",
      tie_word_embeddings: true,
      text_config: decoderConfig(size),
      vision_config: {
        model_type: "clip_vision_model",
        hidden_act: "quick_gelu",
        hidden_size: tower.hiddenSize,
        intermediate_size: tower.intermediateSize,
        num_hidden_layers: tower.numLayers,
        num_attention_heads: tower.numHeads,
        patch_size: tower.patchSize,
        image_size: tower.imageSize,
      },
    },
    tensors: [...decoderTensors("language_model.model.", size), ...towerTensors(), ...projectorTensors(size)],
    // Parts in order, so that a prompt's own words can precede its picture.
    chatTemplate:
      "{{ bos_token }}{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}" +
      "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>" +
      "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}",
    addedTokens: { "<image>": imageTokenId },
    preprocessorConfig,
  });
}

function towerTensors(): CheckpointTensor[] {
  const { hiddenSize, intermediateSize, patchSize } = tower;
  const prefix = "vision_tower.vision_model.";
  const numPositions = (tower.imageSize / patchSize) ** 2 + 1;
  const list: CheckpointTensor[] = [
    random(`${prefix}embeddings.class_embedding`, [hiddenSize], 0.02),
    random(`${prefix}embeddings.patch_embedding.weight`, [hiddenSize, 3, patchSize, patchSize], 0.02),
    random(`${prefix}embeddings.position_embedding.weight`, [numPositions, hiddenSize], 0.02),
    ...norm(`${prefix}pre_layrnorm`),
    ...norm(`${prefix}post_layernorm`),
  ];
  for (let layer = 0; layer < tower.numLayers; layer++) {
    const at = `${prefix}encoder.layers.${layer}.`;
    for (const name of ["q_proj", "k_proj", "v_proj", "out_proj"]) {
      list.push(...linear(`${at}self_attn.${name}`, hiddenSize, hiddenSize));
    }
    list.push(
      ...linear(`${at}mlp.fc1`, intermediateSize, hiddenSize),
      ...linear(`${at}mlp.fc2`, hiddenSize, intermediateSize),
      ...norm(`${at}layer_norm1`),
      ...norm(`${at}layer_norm2`),
    );
  }
  return list;
}

function projectorTensors({ hiddenSize }: DecoderSize): CheckpointTensor[] {
  return [
    ...linear("multi_modal_projector.linear_1", hiddenSize, tower.hiddenSize),
    ...linear("multi_modal_projector.linear_2", hiddenSize, hiddenSize),
  ];
}

function random(name: string, ofShape: readonly number[], standardDeviation: number): CheckpointTensor {
  return { name, shape: ofShape, standardDeviation };
}

function linear(name: string, rows: number, columns: number): CheckpointTensor[] {
  return [random(`${name}.weight`, [rows, columns], 0.8 / Math.sqrt(columns)), random(`${name}.bias`, [rows], 0.02)];
}

function norm(name: string): CheckpointTensor[] {
  const { hiddenSize } = tower;
  return [
    { name: `${name}.weight`, shape: [hiddenSize], standardDeviation: null },
    random(`${name}.bias`, [hiddenSize], 0.02),
  ];
}
