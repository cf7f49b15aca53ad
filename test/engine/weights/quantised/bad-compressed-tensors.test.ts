/** Checkpoints of compressed-tensors whose tensors and settings do not match. */
import { addWeight, int8ZeroPoints, rename, settings } from "../../../support/checkpoints/spoil-checkpoint.ts";
import { testSpoiledCheckpoints } from "./spoiled-checkpoints.ts";

const w4 = { num_bits: 4, type: "int", symmetric: true, strategy: "group", group_size: 32 };
const scheme = (weights: object, more: object = {}): Record<string, unknown> => ({
  config_groups: { group_0: { targets: ["Linear"], weights, input_activations: null, ...more } },
});

testSpoiledCheckpoints([
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
]);
