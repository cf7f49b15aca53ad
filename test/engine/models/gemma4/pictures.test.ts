import { expect, test } from "vitest";

import { gemma4Definition, gemma4UnifiedDefinition } from "../../../../engine/models/gemma4/definition.ts";
import {
  gemma4Grid,
  largestImageSize,
  parseGemma4ImageOptions,
} from "../../../../engine/models/gemma4/image-options.ts";
import type { ProcessorOptions } from "../../../../engine/multimodal/multimodal-processor.ts";
import { resolveKvLayout, resolveKvPrecision, findModelDefinition } from "../../../support/engine/shipped-models.ts";

/** transformers' `get_aspect_ratio_preserving_size`, in squares of 48 pixels. */
test.for([
  [70, 48, 48, 8, 8],
  [70, 300, 20, 2, 32],
  [70, 70, 1, 1, 70],
  [70, 1, 281, 70, 1],
  [70, 672, 960, 10, 7],
  [70, 961, 671, 6, 10],
  [280, 1, 1, 16, 16],
  [280, 3000, 10, 1, 280],
  [280, 71, 1, 1, 140],
  [280, 70, 1, 2, 140],
  [280, 1920, 1080, 12, 22],
  [280, 1081, 1919, 22, 12],
  [1120, 10, 3000, 579, 1],
  [1120, 1, 281, 560, 1],
  [1120, 672, 960, 40, 28],
  [1120, 961, 671, 27, 40],
  [1120, 16384, 3, 1, 1120],
] as const)("with %i embeddings, %i x %i pixels become %i x %i squares", ([most, width, height, rows, columns]) => {
  const options = parseGemma4ImageOptions({ max_soft_tokens: most });
  expect(gemma4Grid({ width, height }, options)).toEqual({ rows, columns });
});

test.for([70, 140, 280, 560, 1120])("a picture can have all of %i embeddings", (most) => {
  const options = parseGemma4ImageOptions({ max_soft_tokens: most });
  const { rows, columns } = gemma4Grid(largestImageSize(options), options);
  expect(rows * columns).toBe(most);
});

test.for<[options: ProcessorOptions, message: string]>([
  [
    { max_soft_tokens: 100 },
    "max_soft_tokens is 100; expected one of 70, 140, 280, 560, 1120: the most embeddings of a picture",
  ],
  [
    { max_soft_tokens: 140, position_embedding_size: 400 },
    "max_soft_tokens is 140; a picture can then have 420 patches in a row, and the model has positions for 400",
  ],
  [{ model_patch_size: 32 }, "model_patch_size is 32; squares of 3 patches of 16 pixels have 48"],
  [{ do_resize: false }, "do_resize is false; expected true: this model always resizes pictures"],
  [{ do_pan_and_scan: true }, "do_pan_and_scan is not supported"],
])("the options %j are rejected", ([options, message]) => {
  expect(() => parseGemma4ImageOptions(options)).toThrow(message);
});

const pictures = { architectures: ["Gemma4ForConditionalGeneration"] };

test.for<[changes: Readonly<Record<string, unknown>>, message: string]>([
  [{ vision_config: null }, "config.json: vision_config"],
  [{ vision_config: { model_type: "siglip_vision_model" } }, "config.json: vision_config.model_type"],
  [
    { vision_config: { num_key_value_heads: 4 } },
    "config.json: vision_config.num_key_value_heads = 4 is not supported",
  ],
  [{ vision_config: { head_dim: 66 } }, "config.json: vision_config.head_dim = 66 is not supported"],
  [
    { vision_config: { rope_parameters: { rope_type: "yarn" } } },
    'config.json: vision_config.rope_parameters.rope_type = "yarn" is not supported',
  ],
  [
    { text_config: { enable_moe_block: true, num_experts: 4 } },
    "config.json: text_config.enable_moe_block = true is not supported: it needs top_k_experts",
  ],
])("%j is rejected by name", ([changes, message]) => {
  const config = { ...pictures, ...changes };
  expect(() => findModelDefinition(config).configure(config)).toThrow(message);
});

const unified = { architectures: ["Gemma4UnifiedForConditionalGeneration"] };

test.for<[changes: Readonly<Record<string, unknown>>, message: string]>([
  [{ vision_config: null }, "config.json: vision_config"],
  [{ vision_config: { model_type: "gemma4_vision" } }, "config.json: vision_config.model_type"],
  [
    { vision_config: { model_patch_size: 32 } },
    "config.json: vision_config.model_patch_size = 32 is not supported: squares have 3 patches of 16 pixels on each side",
  ],
  [
    { vision_config: { output_proj_dims: 2048 } },
    "config.json: vision_config.output_proj_dims = 2048 is not supported: it must be mm_embed_dim, 3840",
  ],
  [{ text_config: { model_type: "gemma4_text" } }, "config.json: text_config.model_type"],
  [
    { text_config: { hidden_size_per_layer_input: 256 } },
    "config.json: text_config.hidden_size_per_layer_input = 256 is not supported",
  ],
])("without a tower, %j is rejected by name", ([changes, message]) => {
  const config = { ...unified, ...changes };
  expect(() => findModelDefinition(config).configure(config)).toThrow(message);
});

test("without a tower, images are whole unless the configuration says otherwise", () => {
  const decoderOf = (text_config: object) => gemma4UnifiedDefinition.configure({ ...unified, text_config }).decoder;
  expect(decoderOf({})).toMatchObject({ keepsImagesWhole: true });
  expect(decoderOf({ use_bidirectional_attention: null })).toMatchObject({ keepsImagesWhole: false });
});

test("a checkpoint with an audio tower is served without it", () => {
  const config = { ...pictures, audio_config: { model_type: "gemma4_audio", hidden_size: 1024 } };
  expect(gemma4Definition.configure(config).visionEncoder).not.toBeNull();
});

test("computes whole images only if the configuration asks for it: in slots on cuda, and never with 8-bit keys and values", () => {
  const text = { global_head_dim: 256 };
  const causal = { config: { ...pictures, text_config: text }, onnxFileNames: null };
  const whole = {
    config: { ...pictures, text_config: { ...text, use_bidirectional_attention: "vision" } },
    onnxFileNames: null,
  };
  expect(resolveKvLayout({ device: "cuda" }, causal)).toEqual({ kind: "paged", blockSize: 64 });
  expect(resolveKvLayout({ device: "cuda" }, whole)).toEqual({ kind: "slots" });
  const settings = { device: "cpu", dtype: "int8" } as const;
  expect(resolveKvPrecision(settings, { kind: "slots" }, causal)).toEqual({ kind: "int8", steps: null });
  expect(resolveKvPrecision(settings, { kind: "slots" }, whole)).toEqual({ kind: "activations" });
});
