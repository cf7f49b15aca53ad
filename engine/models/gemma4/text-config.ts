/** Configuration of Gemma 4's decoder. Its layers differ in heads, windows, and in whose keys and values they read. */
import { z } from "zod";

import { parseActivation, type ActivationName } from "../activation.ts";
import type { KvHeads } from "../built-model.ts";
import {
  expertCount,
  headCount,
  headSize,
  layerCount,
  normEpsilon,
  parseConfigObject,
  positionCount,
  positiveNumber,
  refuseOtherThan,
  requireHeadSize,
  unsupportedField,
  vocabularySize,
  width,
} from "../config-field.ts";
import type { ExpertsShape } from "../decoder-graph/experts.ts";
import { parseRopeConfig, type RopeConfig } from "../llama/rope.ts";

export interface Gemma4Layer extends KvHeads {
  /** Tokens that a position sees, itself included; null means all before it. */
  readonly slidingWindow: number | null;
  readonly intermediateSize: number;
  /** Index of the layer, among all, whose keys and values it reads; its own index if it has its own. */
  readonly kvSource: number;
  /** Whether the projection of keys is that of values too. */
  readonly sharesValueProjection: boolean;
}

export interface Gemma4TextConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly layers: readonly Gemma4Layer[];
  readonly activation: ActivationName;
  readonly maxPositionEmbeddings: number;
  readonly rmsNormEpsilon: number;
  readonly tieWordEmbeddings: boolean;
  /** Of layers without a window. */
  readonly globalRope: RopeConfig;
  readonly localRope: RopeConfig;
  /** Embeddings that each layer has of its own; null if it has none. */
  readonly layerEmbeddings: { readonly vocabSize: number; readonly size: number } | null;
  /** Whether the tokens of a picture see each other in layers with a window. */
  readonly seesWholeImages: boolean;
  /** The token whose embeddings stand for those of pictures in each layer's own embeddings. */
  readonly padTokenId: number;
  /** Logits are bent into the range from minus to plus this value; null leaves them as they are. */
  readonly logitSoftcap: number | null;
  /** Experts beside the perceptron of every layer; null: none. */
  readonly experts: ExpertsShape | null;
}

/** transformers' defaults. */
const textFields = z.looseObject({
  vocab_size: vocabularySize.default(262_144),
  hidden_size: width.default(2304),
  intermediate_size: width.default(9216),
  num_hidden_layers: layerCount.default(30),
  num_attention_heads: headCount.default(8),
  num_key_value_heads: headCount.default(4),
  num_global_key_value_heads: headCount.nullish(),
  head_dim: headSize.default(256),
  global_head_dim: headSize.default(512),
  /**
   * By a layer's index, which transformers 5 writes with leading zeros ("04"), in place of the two fields for layers
   * without a window.
   */
  per_layer_config: z
    .record(z.string(), z.strictObject({ head_dim: headSize.optional(), num_key_value_heads: headCount.optional() }))
    .refine((layers) => Object.keys(layers).every((index) => /^\d+$/.test(index)), 'layers by index, such as "04"')
    .transform((layers) => new Map(Object.entries(layers).map(([index, layer]) => [Number(index), layer])))
    .optional(),
  hidden_activation: z.string().default("gelu_pytorch_tanh"),
  max_position_embeddings: positionCount.default(131_072),
  rms_norm_eps: normEpsilon.default(1e-6),
  tie_word_embeddings: z.boolean().default(true),
  pad_token_id: z.int().nonnegative().nullish(),
  sliding_window: positionCount.default(512),
  layer_types: z.array(z.enum(["sliding_attention", "full_attention"])).nullish(),
  rope_parameters: z
    .looseObject({ full_attention: z.looseObject({}).nullish(), sliding_attention: z.looseObject({}).nullish() })
    .nullish(),
  final_logit_softcapping: positiveNumber.nullish(),
  use_bidirectional_attention: z.enum(["all", "vision"]).nullish(),
  vocab_size_per_layer_input: vocabularySize.default(262_144),
  hidden_size_per_layer_input: z.int().nonnegative().max(524_288).nullish(),
  attention_k_eq_v: z.boolean().default(false),
  num_kv_shared_layers: z.int().nonnegative().max(1024).default(0),
  use_double_wide_mlp: z.boolean().default(false),
  enable_moe_block: z.boolean().default(false),
  num_experts: expertCount.nullish(),
  top_k_experts: expertCount.nullish(),
  moe_intermediate_size: width.nullish(),
});
type TextFields = z.output<typeof textFields>;

const neutralValues = {
  attention_bias: [false],
  quantization_config: [],
} as const;

const DEFAULT_LAYER_EMBEDDING_SIZE = 256;
/** Every sixth layer has no window, if the configuration does not say. */
const DEFAULT_PATTERN = 6;
const GLOBAL_THETA = 1_000_000;
const LOCAL_THETA = 10_000;
const defaultGlobalRope = { rope_type: "proportional", partial_rotary_factor: 0.25, rope_theta: GLOBAL_THETA };

/**
 * @param path Path of the object in config.json: "" or "text_config".
 * @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field.
 */
export function parseGemma4TextConfig(json: unknown, path: string, modelType = "gemma4_text"): Gemma4TextConfig {
  const fields = parseConfigObject(textFields, json, path);
  refuseOtherThan(json, path, { ...neutralValues, model_type: [modelType] });
  if (fields.use_bidirectional_attention === "all") {
    throw unsupportedField(path, "use_bidirectional_attention", "all", "a decoder's text tokens see earlier ones only");
  }
  const { hidden_size_per_layer_input: size = DEFAULT_LAYER_EMBEDDING_SIZE } = fields;
  const { vocab_size: vocabSize, vocab_size_per_layer_input: layerVocabSize, max_position_embeddings } = fields;
  if (size && layerVocabSize < vocabSize) {
    const reason = `the vocabulary has ${vocabSize} tokens, and each needs an embedding for the layers`;
    throw unsupportedField(path, "vocab_size_per_layer_input", layerVocabSize, reason);
  }
  const ropeOf = (kind: "full_attention" | "sliding_attention", otherwise: object): RopeConfig =>
    parseRopeConfig({ rope_parameters: fields.rope_parameters?.[kind] ?? otherwise }, path, {
      defaultTheta: kind === "full_attention" ? GLOBAL_THETA : LOCAL_THETA,
      maxPositionEmbeddings: max_position_embeddings,
    });
  return {
    vocabSize,
    hiddenSize: fields.hidden_size,
    numHeads: fields.num_attention_heads,
    layers: layersOf(fields, path),
    activation: parseActivation(path, "hidden_activation", fields.hidden_activation),
    maxPositionEmbeddings: max_position_embeddings,
    rmsNormEpsilon: fields.rms_norm_eps,
    tieWordEmbeddings: fields.tie_word_embeddings,
    globalRope: ropeOf("full_attention", defaultGlobalRope),
    localRope: ropeOf("sliding_attention", {}),
    layerEmbeddings: size ? { vocabSize: layerVocabSize, size } : null,
    seesWholeImages: fields.use_bidirectional_attention === "vision",
    padTokenId: fields.pad_token_id ?? 0,
    logitSoftcap: fields.final_logit_softcapping ?? null,
    experts: fields.enable_moe_block ? expertsOf(fields, path) : null,
  };
}

function expertsOf(fields: TextFields, path: string): ExpertsShape {
  const required = (field: "num_experts" | "top_k_experts" | "moe_intermediate_size"): number => {
    const value = fields[field];
    if (value == null) throw unsupportedField(path, "enable_moe_block", true, `it needs ${field}`);
    return value;
  };
  const shape = {
    numExperts: required("num_experts"),
    numActive: required("top_k_experts"),
    intermediateSize: required("moe_intermediate_size"),
    hasFactors: true,
  } as const;
  if (shape.numActive <= shape.numExperts) return shape;
  throw unsupportedField(path, "top_k_experts", shape.numActive, `there are ${shape.numExperts} experts`);
}

function layersOf(fields: TextFields, path: string): Gemma4Layer[] {
  const { num_hidden_layers: numLayers, num_kv_shared_layers: numReaders } = fields;
  const types = layerTypes(fields, path);
  if (numReaders >= numLayers) {
    const reason = `there are ${numLayers} layers, and the first must have keys and values`;
    throw unsupportedField(path, "num_kv_shared_layers", numReaders, reason);
  }
  const firstReader = numLayers - numReaders;
  const layers = types.map((type, layer): Gemma4Layer => {
    const isGlobal = type === "full_attention";
    const isReader = layer >= firstReader;
    const kvSource = isReader ? types.lastIndexOf(type, firstReader - 1) : layer;
    if (kvSource < 0) {
      const reason = `layer ${layer} (${type}) would read keys and values of an earlier layer of its kind, and there is none`;
      throw unsupportedField(path, "num_kv_shared_layers", numReaders, reason);
    }
    const { numKvHeads, headDim } = headsOf(fields, path, layer, isGlobal);
    return {
      numKvHeads,
      headDim,
      slidingWindow: isGlobal ? null : fields.sliding_window,
      intermediateSize: fields.intermediate_size * (isReader && fields.use_double_wide_mlp ? 2 : 1),
      kvSource,
      sharesValueProjection: isGlobal && fields.attention_k_eq_v,
    };
  });
  for (const isGlobal of [true, false]) {
    const sizes = layers.filter((layer) => (layer.slidingWindow === null) === isGlobal).map(({ headDim }) => headDim);
    if (new Set(sizes).size < 2) continue;
    const reason = "layers of the same kind have the same frequencies, so that their heads must have the same size";
    throw unsupportedField(path, "per_layer_config", Object.fromEntries(fields.per_layer_config ?? []), reason);
  }
  return layers;
}

function layerTypes({ num_hidden_layers: numLayers, layer_types }: TextFields, path: string) {
  const types =
    layer_types ??
    Array.from({ length: numLayers }, (_, layer) =>
      (layer + 1) % DEFAULT_PATTERN === 0 ? ("full_attention" as const) : ("sliding_attention" as const),
    );
  if (types.length !== numLayers) throw unsupportedField(path, "layer_types", types, `there are ${numLayers} layers`);
  // As in transformers, whatever the configuration says.
  return types.with(numLayers - 1, "full_attention");
}

function headsOf(fields: TextFields, path: string, layer: number, isGlobal: boolean): KvHeads {
  const own = fields.per_layer_config?.get(layer);
  const hasOlderFields = isGlobal && fields.per_layer_config === undefined;
  const olderKvHeads = hasOlderFields && fields.attention_k_eq_v ? fields.num_global_key_value_heads : null;
  const numKvHeads = own?.num_key_value_heads ?? olderKvHeads ?? fields.num_key_value_heads;
  const headDim = own?.head_dim ?? (hasOlderFields ? fields.global_head_dim : fields.head_dim);
  const numHeads = fields.num_attention_heads;
  if (numHeads % numKvHeads !== 0) {
    const reason = `layer ${layer} has ${numHeads} query heads, which are not divisible by it`;
    throw unsupportedField(path, "num_key_value_heads", numKvHeads, reason);
  }
  requireHeadSize(path, headDim);
  return { numKvHeads, headDim };
}
