/** Quantised checkpoints whose tensors and settings do not go together. */
import { readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import type { EngineErrorCode } from "../../../../engine/contract/errors.ts";
import { readQuantisation, withoutQuantisation } from "../../../../engine/weights/quantised/quantised-tensors.ts";
import { writeCheckpoint } from "../../../support/checkpoints/safetensors-writer.ts";
import {
  addWeight,
  asInt64,
  change,
  float8NaN,
  groupsOf,
  halved,
  int8ZeroPoints,
  notFinite,
  readSpoilable,
  removeConfig,
  rename,
  settings,
  state,
  type Spoilable,
} from "../../../support/checkpoints/spoil-checkpoint.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { buildFrom } from "../../models/direct-build.ts";

const w4 = { num_bits: 4, type: "int", symmetric: true, strategy: "group", group_size: 32 };
const scheme = (weights: object, more: object = {}): Record<string, unknown> => ({
  config_groups: { group_0: { targets: ["Linear"], weights, input_activations: null, ...more } },
});

const cases: readonly [
  claim: string,
  name: string,
  spoil: (checkpoint: Spoilable) => void,
  code: EngineErrorCode,
  message: RegExp,
][] = [
  [
    "awq with a renamed qzeros",
    "awq-64",
    rename("qzeros", "zeros"),
    "invalid_checkpoint",
    /has .*q_proj.qweight, but no tensor .*q_proj.qzeros/,
  ],
  [
    "awq with a renamed qweight",
    "awq-64",
    rename("qweight", "weights"),
    "invalid_checkpoint",
    /no tensor .*q_proj.weight/,
  ],
  [
    "awq with integer scales",
    "awq-64",
    change("scales", asInt64),
    "invalid_checkpoint",
    /q_proj.scales is stored as int64; expected float32 or float16/,
  ],
  [
    "awq with half of the scales' rows",
    "awq-32-mixed",
    change("scales", halved),
    "invalid_checkpoint",
    /q_proj.scales has shape \[1, 64\]; expected \[2, 64\]/,
  ],
  [
    "awq with half of the codes",
    "awq-64",
    change("qweight", halved),
    "invalid_checkpoint",
    /q_proj has 32 inputs, which is not a multiple of the group size 64/,
  ],
  [
    "awq with codes of int64",
    "awq-64",
    change("qweight", asInt64),
    "invalid_checkpoint",
    /q_proj.qweight is stored as int64; expected int32/,
  ],
  [
    "awq with a weight beside the codes",
    "awq-64",
    addWeight,
    "invalid_checkpoint",
    /both .*q_proj.weight and .*q_proj.qweight/,
  ],
  [
    "awq with a group size that does not divide",
    "awq-64",
    settings({ group_size: 48 }),
    "invalid_checkpoint",
    /128 inputs, which is not a multiple of the group size 48/,
  ],
  [
    "awq with a group size of 40",
    "awq-64",
    settings({ group_size: 40 }),
    "invalid_checkpoint",
    /quantization_config.group_size .*40.*-1 or a multiple of 16/,
  ],
  [
    "awq in 8 bits",
    "awq-64",
    settings({ bits: 8 }),
    "unsupported_model",
    /quantization_config.bits = 8 is not supported: awq is served in 4 bits/,
  ],
  [
    "awq in another layout",
    "awq-64",
    settings({ version: "gemv" }),
    "unsupported_model",
    /quantization_config.version = "gemv"/,
  ],
  [
    "awq in another layout, by GPTQModel's name",
    "awq-64",
    settings({ version: undefined, checkpoint_format: "gemv_fast" }),
    "unsupported_model",
    /quantization_config.checkpoint_format = "gemv_fast" is not supported: awq is served in the layout "gemm"/,
  ],
  [
    "two descriptions that differ",
    "awq-64",
    ({ config }) => Object.assign(config, { text_config: { quantization_config: { quant_method: "gptq" } } }),
    "unsupported_model",
    /text_config.quantization_config = {"quant_method":"gptq"} is not supported: it differs from quantization_config/,
  ],
  [
    "files of awq as gptq",
    "awq-64",
    settings({ quant_method: "gptq" }),
    "invalid_checkpoint",
    /down_proj.scales has shape \[2, 64\]; expected \[16, 8\] .* in gptq's layout/,
  ],
  [
    "files of gptq as awq",
    "gptq-v2",
    settings({ quant_method: "awq", checkpoint_format: undefined }),
    "invalid_checkpoint",
    /g_idx is of a checkpoint quantised by gptq, but config.json names the quantisation "awq/,
  ],
  [
    "files of awq without a configuration",
    "awq-64",
    removeConfig,
    "invalid_checkpoint",
    /qweight is of a checkpoint quantised by awq and gptq, but config.json has no quantization_config/,
  ],
  [
    "gptq in 3 bits",
    "gptq-v2",
    settings({ bits: 3 }),
    "unsupported_model",
    /quantization_config.bits = 3 is not supported/,
  ],
  [
    "gptq in another format",
    "gptq-v2",
    settings({ checkpoint_format: "marlin" }),
    "unsupported_model",
    /checkpoint_format = "marlin"/,
  ],
  [
    "gptq in 8 bits whose codes have 4",
    "gptq-v2",
    settings({ bits: 8 }),
    "invalid_checkpoint",
    /down_proj.scales has shape \[2, 64\]; expected \[1, 64\] .* of 8 bits/,
  ],
  [
    "gptq with a rule that is no expression",
    "gptq-v2",
    settings({ dynamic: { "+:(": {} } }),
    "invalid_checkpoint",
    /dynamic.* no valid regular expression/,
  ],
  [
    "gptq with act-order and no groups",
    "gptq-act-order",
    rename("g_idx", "groups"),
    "invalid_checkpoint",
    /no tensor .*q_proj.g_idx/,
  ],
  [
    "gptq with a group that does not exist",
    "gptq-act-order",
    groupsOf((groups) => void (groups[3] = 2)),
    "invalid_checkpoint",
    /g_idx puts input 3 into group 2; there are 2 groups/,
  ],
  [
    "gptq with groups of unequal size",
    "gptq-act-order",
    groupsOf((groups) => groups.fill(0)),
    "invalid_checkpoint",
    /g_idx puts 64 inputs into group 0; the group size is 32/,
  ],
  [
    "compressed-tensors with a renamed scale",
    "ct-w4a16",
    rename("weight_scale", "scale"),
    "invalid_checkpoint",
    /no tensor .*q_proj.weight_scale/,
  ],
  [
    "compressed-tensors with renamed codes",
    "ct-w4a16",
    rename("weight_packed", "packed"),
    "invalid_checkpoint",
    /has .*q_proj.weight_scale, but no tensor .*q_proj.weight/,
  ],
  [
    "compressed-tensors without zero points",
    "ct-w4a16",
    settings(scheme({ ...w4, symmetric: false })),
    "invalid_checkpoint",
    /no tensor .*weight_zero_point/,
  ],
  [
    "compressed-tensors with a zero point of 8",
    "ct-w4a16-asymmetric",
    int8ZeroPoints(8),
    "invalid_checkpoint",
    /q_proj.weight has a zero point of 8 in .*weight_zero_point; those of 4 bits are from -8 to 7/,
  ],
  [
    "compressed-tensors in other groups",
    "ct-w4a16",
    settings(scheme({ ...w4, group_size: 64 })),
    "invalid_checkpoint",
    /weight_scale has shape \[64, 4\]; expected \[64, 2\]/,
  ],
  [
    "compressed-tensors in 2 bits",
    "ct-w4a16",
    settings(scheme({ ...w4, num_bits: 2 })),
    "unsupported_model",
    /config_groups.group_0.weights.num_bits = 2/,
  ],
  [
    "compressed-tensors with 4-bit floats",
    "ct-w4a16",
    settings(scheme({ ...w4, type: "float" })),
    "unsupported_model",
    /num_bits = 4 is not supported: floating/,
  ],
  [
    "compressed-tensors with static activations",
    "ct-w8a8",
    settings(
      scheme(
        { ...w4, num_bits: 8, strategy: "channel", group_size: null },
        { input_activations: { num_bits: 8, dynamic: false, strategy: "tensor" } },
      ),
    ),
    "unsupported_model",
    /group_0.input_activations = .* dynamic scale per token/,
  ],
  [
    "compressed-tensors with quantised KV",
    "ct-w4a16",
    settings({ kv_cache_scheme: { num_bits: 8 } }),
    "unsupported_model",
    /quantization_config.kv_cache_scheme/,
  ],
  [
    "compressed-tensors with transforms",
    "ct-w4a16",
    settings({ transform_config: { config_groups: { u: {} } } }),
    "unsupported_model",
    /quantization_config.transform_config/,
  ],
  [
    "compressed-tensors in a sparse format",
    "ct-w4a16",
    settings({ format: "marlin-24" }),
    "unsupported_model",
    /quantization_config.format = "marlin-24"/,
  ],
  [
    "compressed-tensors without a group for a module",
    "ct-w4a16",
    settings({ config_groups: { group_0: { targets: ["re:.*mlp.*"], weights: w4 } } }),
    "invalid_checkpoint",
    /no group in quantization_config.config_groups targets it/,
  ],
  [
    "compressed-tensors with doubled codes",
    "ct-w4a16",
    addWeight,
    "invalid_checkpoint",
    /both .*q_proj.weight and .*weight_packed/,
  ],
  [
    "fp8 with a scale that is not finite",
    "fp8-blocks",
    change("weight_scale_inv", notFinite),
    "invalid_checkpoint",
    /has the scale NaN in .*q_proj.weight_scale_inv; scales are finite/,
  ],
  [
    "bitsandbytes in 8 bits with a scale that is not finite",
    "bnb-int8",
    change("SCB", notFinite),
    "invalid_checkpoint",
    /has the scale NaN in .*q_proj.SCB; scales are finite/,
  ],
  [
    "bitsandbytes with a scale that is not finite",
    "bnb-fp4",
    change("weight.absmax", notFinite),
    "invalid_checkpoint",
    /has the scale NaN in .*q_proj.weight.absmax; scales are finite/,
  ],
  [
    "bitsandbytes with a codebook that is not finite",
    "bnb-nf4",
    change("weight.quant_map", notFinite),
    "invalid_checkpoint",
    /has the scale NaN in .*q_proj.weight.quant_map; scales are finite/,
  ],
  [
    "bitsandbytes in 8 bits in the layout of a GPU",
    "bnb-int8",
    change("weight_format", () => ({ bytes: Uint8Array.of(2) })),
    "unsupported_model",
    /q_proj.weight_format is 2: the codes of .*q_proj are in the layout of a GPU/,
  ],
  [
    "bitsandbytes in 8 bits with several formats",
    "bnb-int8",
    change("weight_format", () => ({ bytes: Uint8Array.of(0, 0), shape: [2] })),
    "invalid_checkpoint",
    /q_proj.weight_format has 2 bytes; expected one number/,
  ],
  [
    "fp8 with a renamed scale",
    "fp8-blocks",
    rename("weight_scale_inv", "scale"),
    "invalid_checkpoint",
    /q_proj.weight is stored as float8e4m3/,
  ],
  [
    "fp8 whose weights are float32",
    "fp8-static",
    addWeight,
    "invalid_checkpoint",
    /q_proj.weight is stored as float32; expected float8e4m3/,
  ],
  [
    "fp8 in other blocks",
    "fp8-blocks",
    settings({ weight_block_size: [64, 64] }),
    "invalid_checkpoint",
    /weight_scale_inv has shape \[2, 2\]; expected \[3, 3\]/,
  ],
  [
    "fp8 with a value that is no number",
    "fp8-static",
    change("weight", float8NaN),
    "invalid_checkpoint",
    /q_proj.weight has a value that is not a number/,
  ],
  ["fp8 as e5m2", "fp8-static", settings({ fmt: "e5m2" }), "unsupported_model", /quantization_config.fmt = "e5m2"/],
  [
    "files of fp8 as bitsandbytes",
    "fp8-static",
    settings({ quant_method: "bitsandbytes", load_in_8bit: true }),
    "invalid_checkpoint",
    /weight_scale_inv is of a checkpoint quantised by fp8, but config.json names the quantisation "bitsandbytes/,
  ],
  [
    "bitsandbytes with a state that is not JSON",
    "bnb-nf4",
    state("{"),
    "invalid_checkpoint",
    /quant_state.bitsandbytes__nf4 is not JSON/,
  ],
  [
    "bitsandbytes with a state of another shape",
    "bnb-nf4",
    state('{"blocksize":64,"shape":[64,64]}'),
    "invalid_checkpoint",
    /q_proj.weight has shape .* expected \[2048, 1\]/,
  ],
  [
    "bitsandbytes without a state",
    "bnb-nf4",
    rename("weight.quant_state.bitsandbytes__nf4", "weight.state"),
    "invalid_checkpoint",
    /no tensor .*quant_state.bitsandbytes__nf4/,
  ],
  [
    "bitsandbytes without a codebook",
    "bnb-nf4",
    rename("weight.nested_quant_map", "weight.map"),
    "invalid_checkpoint",
    /no tensor .*weight.nested_quant_map/,
  ],
  [
    "bitsandbytes in neither 4 nor 8 bits",
    "bnb-int8",
    settings({ load_in_8bit: false }),
    "unsupported_model",
    /either load_in_4bit or load_in_8bit/,
  ],
  [
    "bitsandbytes with scales of float16",
    "bnb-int8",
    change("SCB", ({ shape }) => ({ dtype: "F16", bytes: new Uint8Array(shape[0]! * 2) })),
    "invalid_checkpoint",
    /SCB is stored as float16; expected float32/,
  ],
  [
    "another method",
    "awq-64",
    settings({ quant_method: "mxfp4" }),
    "unsupported_model",
    /quantization_config.quant_method = "mxfp4" is not supported: served are awq, gptq, compressed-tensors, fp8, bitsandbytes/,
  ],
  [
    "no method",
    "awq-64",
    ({ config }) => void (config.quantization_config = {}),
    "unsupported_model",
    /quantization_config.quant_method = null/,
  ],
  [
    "a method without any quantised tensor",
    "awq-64",
    ({ tensors }) => {
      for (const name of tensors.keys()) if (/q(?:weight|zeros)$|scales$/.test(name)) tensors.delete(name);
    },
    "invalid_checkpoint",
    /names the quantisation "awq, .*", but no tensor is quantised with it/,
  ],
];

test.for(cases)("refuses %s", async ([, name, spoil, code, message]) => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  const checkpoint = await readSpoilable(name);
  spoil(checkpoint);
  await writeCheckpoint(folder.path, checkpoint.config, [...checkpoint.tensors.values()]);
  await expect(buildFrom(folder.path, { cacheFolder: cache.path, dtype: "auto" })).rejects.toThrow(
    expect.objectContaining({ code, message: expect.stringMatching(message) }),
  );
});

test("refuses a file whose quantised tensors are cut off", async () => {
  await using folder = await createTemporaryFolder();
  const { config, tensors } = await readSpoilable("awq-64");
  await writeCheckpoint(folder.path, config, [...tensors.values()]);
  const file = join(folder.path, "model.safetensors");
  await truncate(file, 20_000);
  await expect(buildFrom(folder.path, { cacheFolder: folder.path })).rejects.toThrow(/model.safetensors is truncated/);
});

test("refuses a file with two tensors of one name", async () => {
  await using folder = await createTemporaryFolder();
  const { config, tensors } = await readSpoilable("awq-64");
  await writeCheckpoint(folder.path, config, [...tensors.values()]);
  const file = join(folder.path, "model.safetensors");
  const bytes = await readFile(file);
  // Equally long, so that nothing else changes: JSON keeps the last of two equal names.
  const doubled = bytes
    .toString("latin1")
    .replaceAll("layers.1.self_attn.q_proj.qweight", "layers.0.self_attn.q_proj.qweight");
  await writeFile(file, Buffer.from(doubled, "latin1"));
  await expect(buildFrom(folder.path, { cacheFolder: folder.path })).rejects.toThrow(/leaves a hole before it/);
});

test("reads a quantisation that is described in text_config only, or there too", () => {
  const fields = { quant_method: "awq", bits: 4, group_size: 128, version: "gemm" };
  const nested = { model_type: "qwen2_5_vl", text_config: { hidden_size: 64, quantization_config: fields } };
  for (const config of [nested, { ...nested, quantization_config: { ...fields } }]) {
    expect(readQuantisation(config)?.description).toBe("awq, 4 bits in groups of 128");
    expect(withoutQuantisation(config)).toEqual({ model_type: "qwen2_5_vl", text_config: { hidden_size: 64 } });
  }
});
