/** Writes checkpoints of the bench's shape in the formats of quantised uploads, with random integers. */
import { join } from "node:path";
import { crc32 } from "node:zlib";

import { benchFolder } from "./settings.ts";
import { fillRandom, shape } from "./shape.ts";
import { decoderConfig, decoderTensors, writeCheckpoint, type CheckpointTensor } from "./write-checkpoint.ts";

/** As in our own int4 on the CPU. */
const GROUP_SIZE = 64;

const w4 = { num_bits: 4, type: "int", symmetric: true, strategy: "group", group_size: GROUP_SIZE };
const w8 = { num_bits: 8, type: "int", symmetric: true, strategy: "channel" };
const token = { num_bits: 8, type: "int", symmetric: true, strategy: "token", dynamic: true };

const compressed = (format: string, group: object): object => ({
  quant_method: "compressed-tensors",
  quantization_status: "compressed",
  format,
  ignore: ["lm_head"],
  config_groups: { group_0: { targets: ["Linear"], format, ...group } },
});

export const quantisedFormats = {
  awq: { quant_method: "awq", bits: 4, group_size: GROUP_SIZE, version: "gemm" },
  gptq: { quant_method: "gptq", bits: 4, group_size: GROUP_SIZE },
  "gptq-act-order": { quant_method: "gptq", bits: 4, group_size: GROUP_SIZE, desc_act: true },
  "gptq-8bit": { quant_method: "gptq", bits: 8, group_size: GROUP_SIZE },
  w4a16: compressed("pack-quantized", { weights: w4 }),
  w8a8: compressed("int-quantized", { weights: w8, input_activations: token }),
} as const;

export type QuantisedFormat = keyof typeof quantisedFormats;

/** Writes the folder unless it exists; returns it. */
export function writeQuantisedCheckpoint(format: QuantisedFormat): string {
  const isLinear = ({ name }: CheckpointTensor): boolean => name.endsWith("_proj.weight");
  return writeCheckpoint(join(benchFolder, `quantised-${format}-layers`), {
    config: {
      architectures: ["LlamaForCausalLM"],
      ...decoderConfig(),
      quantization_config: quantisedFormats[format],
    },
    tensors: decoderTensors("model.").flatMap((tensor) => (isLinear(tensor) ? quantised(format, tensor) : [tensor])),
    chatTemplate: "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}",
    addedTokens: {},
  });
}

function quantised(
  format: QuantisedFormat,
  { name, shape: [rows = 0, columns = 0] }: CheckpointTensor,
): CheckpointTensor[] {
  const module = name.replace(/\.weight$/, "");
  const groups = columns / GROUP_SIZE;
  // The standard deviation of uniformly distributed codes times the scale is that of the weights.
  const deviation = 0.8 / Math.sqrt(columns);
  const codes = (part: string, codeShape: number[], dtype: "I8" | "I32"): CheckpointTensor => {
    const numBytes = codeShape.reduce((product, size) => product * size, dtype === "I8" ? 1 : 4);
    return raw(`${module}.${part}`, codeShape, {
      dtype,
      numBytes,
      make: () => randomBytes(numBytes, `${module}.${part}`),
    });
  };
  const scales = (part: string, scaleShape: number[], bits: 4 | 8): CheckpointTensor => {
    const count = scaleShape.reduce((product, size) => product * size, 1);
    const make = (): Uint8Array =>
      new Uint8Array(new Float16Array(count).fill((deviation * Math.sqrt(12)) / 2 ** bits).buffer);
    return raw(`${module}.${part}`, scaleShape, { dtype: "F16", numBytes: 2 * count, make });
  };
  /** Zero points in the middle, one lower in version 1 of GPTQ's format. */
  const zeros = (bits: 4 | 8, byte: number): CheckpointTensor => {
    const numBytes = (groups * rows * bits) / 8;
    const make = (): Uint8Array => new Uint8Array(numBytes).fill(byte);
    return raw(`${module}.qzeros`, [groups, (rows * bits) / 32], { dtype: "I32", numBytes, make });
  };
  switch (format) {
    case "awq":
      return [codes("qweight", [columns, rows / 8], "I32"), zeros(4, 0x88), scales("scales", [groups, rows], 4)];
    case "gptq":
      return [codes("qweight", [columns / 8, rows], "I32"), zeros(4, 0x77), scales("scales", [groups, rows], 4)];
    case "gptq-act-order":
      return [
        ...quantised("gptq", { name, shape: [rows, columns], standardDeviation: null }),
        actOrder(module, columns),
      ];
    case "gptq-8bit":
      return [codes("qweight", [columns / 4, rows], "I32"), zeros(8, 0x7f), scales("scales", [groups, rows], 8)];
    case "w4a16":
      return [codes("weight_packed", [rows, columns / 8], "I32"), scales("weight_scale", [rows, groups], 4)];
    case "w8a8":
      return [codes("weight", [rows, columns], "I8"), scales("weight_scale", [rows, 1], 8)];
  }
  return format satisfies never;
}

/** The group of each input, in an order that looks random: a stride that is coprime to the number of inputs. */
function actOrder(module: string, columns: number): CheckpointTensor {
  const stride = columns === shape.hiddenSize ? 113 : 517;
  const make = (): Uint8Array => {
    const groups = Int32Array.from({ length: columns }, (_, input) =>
      Math.floor(((input * stride) % columns) / GROUP_SIZE),
    );
    return new Uint8Array(groups.buffer);
  };
  return raw(`${module}.g_idx`, [columns], { dtype: "I32", numBytes: 4 * columns, make });
}

function raw(name: string, tensorShape: number[], content: NonNullable<CheckpointTensor["raw"]>): CheckpointTensor {
  return { name, shape: tensorShape, standardDeviation: null, raw: content };
}

/** Different for each name: layers with the same weights would stay in the processor's cache. */
function randomBytes(length: number, name: string): Uint8Array {
  const values = new Float32Array(length);
  fillRandom(values, 40, crc32(name));
  return Uint8Array.from(values, (value) => value + 128);
}
