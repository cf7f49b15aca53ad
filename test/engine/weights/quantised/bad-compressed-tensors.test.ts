/** Checkpoints of compressed-tensors whose tensors and settings do not match. */
import { addWeight, change, int8ZeroPoints, rename, settings } from "../../../support/checkpoints/spoil-checkpoint.ts";
import { testSpoiledCheckpoints } from "./spoiled-checkpoints.ts";

const w4 = { num_bits: 4, type: "int", symmetric: true, strategy: "group", group_size: 32 };
const mxfp4 = { num_bits: 4, type: "float", symmetric: true, strategy: "group", group_size: 32 };
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
    "compressed-tensors with 4-bit floats in words",
    "ct-w4a16",
    settings(scheme({ ...w4, type: "float" })),
    "invalid_checkpoint",
    /weight_packed is stored as int32; expected uint8/,
  ],
  [
    "compressed-tensors with floats in 6 bits",
    "ct-mxfp4",
    settings(scheme({ ...mxfp4, num_bits: 6 })),
    "unsupported_model",
    /num_bits = 6 is not supported: floating point numbers are served in 4 and 8 bits/,
  ],
  [
    "compressed-tensors with floats in other groups",
    "ct-mxfp4",
    settings(scheme({ ...mxfp4, group_size: 64 })),
    "unsupported_model",
    /weights.group_size = 64 is not supported: of type float, groups are served in 32/,
  ],
  [
    "compressed-tensors with 4-bit floats of a channel",
    "ct-mxfp4",
    settings(scheme({ ...mxfp4, strategy: "channel", group_size: null })),
    "unsupported_model",
    /weights.strategy = "channel" is not supported: of type float, served are group, tensor_group/,
  ],
  [
    "NVFP4 without the scale of a matrix",
    "ct-nvfp4",
    rename("weight_global_scale", "other_scale"),
    "invalid_checkpoint",
    /no tensor .*q_proj.weight_global_scale/,
  ],
  [
    "NVFP4 with several scales of a matrix",
    "ct-nvfp4",
    change("weight_global_scale", () => ({ shape: [2], bytes: new Uint8Array(8) })),
    "invalid_checkpoint",
    /weight_global_scale has shape \[2\]; expected one number/,
  ],
  [
    "NVFP4 with a scale of 0 for the matrix",
    "ct-nvfp4",
    change("weight_global_scale", () => ({ bytes: new Uint8Array(4) })),
    "invalid_checkpoint",
    /q_proj.weight has the scale 0 in .*weight_global_scale/,
  ],
  [
    "NVFP4 with exponents as scales",
    "ct-nvfp4",
    change("weight_scale", () => ({ dtype: "U8" })),
    "invalid_checkpoint",
    /weight_scale is stored as uint8; expected float8e4m3/,
  ],
  [
    "MXFP4 with a scale that is not a number",
    "ct-mxfp4",
    change("weight_scale", ({ bytes }) => ({ bytes: new Uint8Array(bytes.length).fill(255) })),
    "invalid_checkpoint",
    /q_proj.weight has the scale NaN in .*weight_scale/,
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
