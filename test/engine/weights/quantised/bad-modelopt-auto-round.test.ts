/** Checkpoints of Model Optimizer and AutoRound whose tensors and settings do not match. */
import { addTensor, change, halved, rename, settings } from "../../../support/checkpoints/spoil-checkpoint.ts";
import { testSpoiledCheckpoints } from "./spoiled-checkpoints.ts";

testSpoiledCheckpoints([
  [
    "an algorithm of modelopt that changes inputs",
    "modelopt-nvfp4",
    settings({ quant_algo: "NVFP4_AWQ" }),
    "unsupported_model",
    /quant_algo = "NVFP4_AWQ" is not supported: served are FP8/,
  ],
  [
    "modelopt with factors of inputs",
    "modelopt-nvfp4",
    addTensor("pre_quant_scale", { dtype: "F32", shape: [64], bytes: new Uint8Array(256) }),
    "invalid_checkpoint",
    /has .*q_proj.pre_quant_scale, which is not supported/,
  ],
  [
    "modelopt without codes",
    "modelopt-nvfp4",
    rename("weight", "codes"),
    "invalid_checkpoint",
    /has .*q_proj.weight_scale, but no tensor .*q_proj.weight /,
  ],
  [
    "modelopt without the scale of a matrix",
    "modelopt-nvfp4",
    rename("weight_scale_2", "other_scale"),
    "invalid_checkpoint",
    /no tensor .*q_proj.weight_scale_2/,
  ],
  [
    "modelopt with too few scales",
    "modelopt-nvfp4",
    change("weight_scale", halved),
    "invalid_checkpoint",
    /weight_scale has shape \[32, 4\]; expected \[64, 4\]/,
  ],
  [
    "modelopt with scales of no known blocks",
    "modelopt-mixed",
    change("weight_scale", () => ({ shape: [3], bytes: new Uint8Array(12) })),
    "invalid_checkpoint",
    /weight_scale has shape \[3\]; expected \[1, 1\] .*blocks of 128 x 128/,
  ],
  [
    "auto-round with floats",
    "auto-round-gptq",
    settings({ data_type: "mx_fp" }),
    "unsupported_model",
    /data_type = "mx_fp" is not supported: auto-round is served with integers/,
  ],
  [
    "auto-round with quantised activations",
    "auto-round-gptq",
    settings({ act_bits: 8 }),
    "unsupported_model",
    /act_bits = 8 is not supported/,
  ],
  [
    "auto-round with rotations",
    "auto-round-gptq",
    settings({ rotation_config: { kind: "hadamard" } }),
    "unsupported_model",
    /rotation_config = .* is not supported/,
  ],
  [
    "a packing of auto-round that is not served",
    "auto-round-gptq",
    settings({ packing_format: "auto_round:mlx" }),
    "unsupported_model",
    /packing_format = "auto_round:mlx" is not supported: served are auto_round:auto_gptq/,
  ],
  [
    "auto-round in 2 bits",
    "auto-round-gptq",
    change("qzeros", ({ shape }) => ({ shape: [shape[0]!, 4], bytes: new Uint8Array(4 * shape[0]! * 4) })),
    "invalid_checkpoint",
    /qweight has 2 bits by the shape of .*qzeros; 4 and 8 are served/,
  ],
  [
    "auto-round with groups of no served size",
    "auto-round-mixed",
    change("scales", () => ({ shape: [3, 64], bytes: new Uint8Array(3 * 64 * 2) })),
    "invalid_checkpoint",
    /scales has 3 groups for 64 inputs; the size of a group is a multiple of 16/,
  ],
]);
