/** Matrices so large that they are converted in several parts, compared with a plain reading of each format. */
import { mkdir, open, readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../../engine/weights/prepare-weights.ts";
import type { WeightFormat } from "../../../../engine/weights/prepared-weights.ts";
import type { StoredTensor } from "../../../../engine/weights/stored-tensor.ts";
import { dequantizeBlockwise } from "../../../support/checkpoints/dequantize.ts";
import {
  floatTensor,
  writeCheckpoint,
  type SafetensorsTensor,
} from "../../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

const outFeatures = 2336;
// Rows of so many inputs are converted in three parts of 1024, 1024 and the rest.
const inFeatures = 1024;
const groupSize = 32;
const numGroups = inFeatures / groupSize;

/** The same numbers on every run. */
function randomBytes(length: number, seed: number): Uint8Array {
  let state = seed;
  return Uint8Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 24;
  });
}

interface Sample {
  readonly config: object;
  readonly tensors: readonly SafetensorsTensor[];
  readonly element: (row: number, column: number) => number;
}

function words(bytes: Uint8Array): (index: number) => number {
  const view = new DataView(bytes.buffer);
  return (index) => view.getUint32(4 * index, true);
}

const scaleValues = Float32Array.from(randomBytes(outFeatures * numGroups, 9), (byte) => (byte + 1) / 256);

/** Of GPTQ and AWQ: scales [groups, out], zero points [groups, out * bits / 32]. */
function transposedSample(bits: 4 | 8, method: "awq" | "gptq" | "gptq_v2"): Sample {
  const perWord = 32 / bits;
  const isAwq = method === "awq";
  const codes = randomBytes((outFeatures * inFeatures * bits) / 8, 1);
  const zeros = randomBytes((outFeatures * numGroups * bits) / 8, 2);
  const [codeWord, zeroWord] = [words(codes), words(zeros)];
  const field = (word: number, index: number): number => Math.floor(word / 2 ** (bits * index)) % 2 ** bits;
  const order = isAwq ? [0, 4, 1, 5, 2, 6, 3, 7] : Array.from({ length: perWord }, (_, index) => index);
  const wordsPerRow = outFeatures / perWord;
  const one = method === "gptq" ? (bits === 4 ? 0x11111111 : 0x01010101) : 0;
  return {
    config: {
      quant_method: isAwq ? "awq" : "gptq",
      bits,
      group_size: groupSize,
      ...(!isAwq && { checkpoint_format: method }),
    },
    tensors: [
      {
        name: "m.qweight",
        dtype: "I32",
        shape: isAwq ? [inFeatures, wordsPerRow] : [inFeatures / perWord, outFeatures],
        bytes: codes,
      },
      { name: "m.qzeros", dtype: "I32", shape: [numGroups, wordsPerRow], bytes: zeros },
      floatTensor("m.scales", [numGroups, outFeatures], scaleValues, "F16"),
    ],
    element(row, column) {
      const group = Math.floor(column / groupSize);
      const code = isAwq
        ? field(codeWord(column * wordsPerRow + Math.floor(row / 8)), order[row % 8]!)
        : field(codeWord(Math.floor(column / perWord) * outFeatures + row), column % perWord);
      const zeroPoints = (zeroWord(group * wordsPerRow + Math.floor(row / perWord)) + one) % 2 ** 32;
      const zeroPoint = field(zeroPoints, order[row % perWord]!);
      return (code - zeroPoint) * scaleValues[group * outFeatures + row]!;
    },
  };
}

function packedSample(bits: 4 | 8): Sample {
  const codes = randomBytes((outFeatures * inFeatures * bits) / 8, 3);
  const zeros = randomBytes((outFeatures * numGroups * bits) / 8, 4);
  const perByte = 8 / bits;
  const weights = { num_bits: bits, type: "int", symmetric: false, strategy: "group", group_size: groupSize };
  const perWord = 32 / bits;
  const zeroWord = words(zeros);
  return {
    config: {
      quant_method: "compressed-tensors",
      config_groups: { group_0: { targets: ["Linear"], weights } },
    },
    tensors: [
      { name: "m.weight_packed", dtype: "I32", shape: [outFeatures, (inFeatures * bits) / 32], bytes: codes },
      { name: "m.weight_zero_point", dtype: "I32", shape: [outFeatures / perWord, numGroups], bytes: zeros },
      floatTensor("m.weight_scale", [outFeatures, numGroups], scaleValues, "BF16"),
    ],
    element(row, column) {
      const group = Math.floor(column / groupSize);
      const index = row * inFeatures + column;
      const code = (codes[Math.floor(index / perByte)]! >> ((index % perByte) * bits)) % 2 ** bits;
      const word = zeroWord(Math.floor(row / perWord) * numGroups + group);
      const zeroPoint = Math.floor(word / 2 ** ((row % perWord) * bits)) % 2 ** bits;
      return (code - zeroPoint) * scaleValues[row * numGroups + group]!;
    },
  };
}

function float8Sample(): Sample {
  // Without the two codes of NaN.
  const codes = randomBytes(outFeatures * inFeatures, 5).map((code) => ((code & 0x7f) === 0x7f ? 0 : code));
  const blockRows = Math.ceil(outFeatures / 128);
  const blockColumns = inFeatures / 128;
  const scales = scaleValues.slice(0, blockRows * blockColumns);
  return {
    config: { quant_method: "fp8", weight_block_size: [128, 128] },
    tensors: [
      { name: "m.weight", dtype: "F8_E4M3", shape: [outFeatures, inFeatures], bytes: codes },
      floatTensor("m.weight_scale_inv", [blockRows, blockColumns], scales),
    ],
    element(row, column) {
      const code = codes[row * inFeatures + column]!;
      const [exponent, mantissa] = [(code >> 3) & 15, code & 7];
      const magnitude = exponent === 0 ? (mantissa / 8) * 2 ** -6 : (1 + mantissa / 8) * 2 ** (exponent - 7);
      return (
        (code >> 7 === 1 ? -magnitude : magnitude) *
        scales[Math.floor(row / 128) * blockColumns + Math.floor(column / 128)]!
      );
    },
  };
}

function codebookSample(): Sample {
  const codes = randomBytes((outFeatures * inFeatures) / 2, 6);
  const numBlocks = Math.ceil((outFeatures * inFeatures) / 64);
  const absmax = randomBytes(numBlocks, 7);
  const codebook = scaleValues.slice(100, 116);
  const nestedCodebook = scaleValues.slice(200, 456);
  const nestedScales = scaleValues.slice(500, 500 + Math.ceil(numBlocks / 256));
  const state = { blocksize: 64, shape: [outFeatures, inFeatures], nested_blocksize: 256, nested_offset: 0.125 };
  const stateBytes = new TextEncoder().encode(JSON.stringify(state));
  return {
    config: { quant_method: "bitsandbytes", load_in_4bit: true },
    tensors: [
      { name: "m.weight", dtype: "U8", shape: [codes.length, 1], bytes: codes },
      { name: "m.weight.absmax", dtype: "U8", shape: [numBlocks], bytes: absmax },
      floatTensor("m.weight.quant_map", [16], codebook),
      floatTensor("m.weight.nested_quant_map", [256], nestedCodebook),
      floatTensor("m.weight.nested_absmax", [nestedScales.length], nestedScales),
      { name: "m.weight.quant_state.bitsandbytes__nf4", dtype: "U8", shape: [stateBytes.length], bytes: stateBytes },
    ],
    element(row, column) {
      const index = row * inFeatures + column;
      const code = index % 2 === 0 ? codes[index / 2]! >> 4 : codes[(index - 1) / 2]! & 15;
      const block = Math.floor(index / 64);
      const product = Math.fround(nestedCodebook[absmax[block]!]! * nestedScales[Math.floor(block / 256)]!);
      return codebook[code]! * Math.fround(product + 0.125);
    },
  };
}

const blocks: WeightFormat = { kind: "stored-blocks", bits: 4, blockSize: 32, hasZeroPoints: true };
const samples: readonly [claim: string, sample: Sample, kept: WeightFormat | null][] = [
  ["awq", transposedSample(4, "awq"), blocks],
  ["gptq", transposedSample(4, "gptq"), blocks],
  ["gptq_v2", transposedSample(4, "gptq_v2"), blocks],
  ["gptq in 8 bits", transposedSample(8, "gptq"), { ...blocks, bits: 8 }],
  ["compressed-tensors", packedSample(4), blocks],
  ["compressed-tensors in 8 bits", packedSample(8), { ...blocks, bits: 8 }],
  ["fp8", float8Sample(), null],
  ["bitsandbytes", codebookSample(), null],
];

async function prepare(sample: Sample, format: WeightFormat, { folder, cacheFolder }: PrepareOptions) {
  await mkdir(folder, { recursive: true });
  await writeCheckpoint(folder, { quantization_config: sample.config }, sample.tensors);
  const checkpoint = await openCheckpoint(folder, { cacheFolder });
  const shape = checkpoint.tensors.get("m.weight")!.shape;
  expect(shape).toEqual([outFeatures, inFeatures]);
  const request = { name: "m", sources: ["m.weight"], shape, format };
  const { weight, scales, zeroPoints } = (
    await prepareWeights(checkpoint, [request], { cacheFolder, numThreads: 1 })
  ).get("m")!;
  const read = async (tensor: typeof weight): Promise<ArrayBuffer> => {
    const bytes = new Uint8Array(tensor.byteLength);
    await using handle = await open(tensor.file);
    await handle.read(bytes, 0, bytes.length, tensor.byteOffset);
    return bytes.buffer;
  };
  return {
    weight: await read(weight),
    scales: scales === null ? null : new Float32Array(await read(scales)),
    zeroPoints: zeroPoints === null ? null : new Uint8Array(await read(zeroPoints)),
  };
}

interface PrepareOptions {
  readonly folder: string;
  readonly cacheFolder: string;
}

function expected({ element }: Sample): Float32Array {
  return Float32Array.from({ length: outFeatures * inFeatures }, (_, index) =>
    element(Math.floor(index / inFeatures), index % inFeatures),
  );
}

function differences(actual: ArrayLike<number>, wanted: ArrayLike<number>): number {
  let count = actual.length === wanted.length ? 0 : Infinity;
  for (let index = 0; index < wanted.length; index++) if (Math.fround(actual[index]!) !== wanted[index]!) count++;
  return count;
}

test.for(samples)("%s is dequantised in parts", async ([, sample]) => {
  await using folder = await createTemporaryFolder();
  const { weight } = await prepare(sample, { kind: "plain", elementType: "float32" }, pathsIn(folder.path));
  expect(differences(new Float32Array(weight), expected(sample))).toBe(0);
});

test.for(samples.filter(([, , kept]) => kept !== null))("%s is packed in parts", async ([, sample, kept]) => {
  await using folder = await createTemporaryFolder();
  const { weight, scales, zeroPoints } = await prepare(sample, kept!, pathsIn(folder.path));
  const packed = { weight: new Uint8Array(weight), scales: scales!, zeroPoints };
  const values = dequantizeBlockwise(
    packed,
    outFeatures,
    inFeatures,
    kept as Extract<WeightFormat, { kind: "blockwise" }>,
  );
  expect(differences(values, expected(sample))).toBe(0);
});

test("rows are packed in parts in the order of the inputs of another matrix", async () => {
  await using folder = await createTemporaryFolder();
  const { cacheFolder, folder: checkpointFolder } = pathsIn(folder.path);
  const sample = transposedSample(4, "gptq");
  const groups = outFeatures / groupSize;
  const strided = Array.from({ length: outFeatures }, (_, input) => (input * 77) % outFeatures);
  const consumer: SafetensorsTensor[] = [
    { name: "n.qweight", dtype: "I32", shape: [outFeatures / 8, 8], bytes: randomBytes(outFeatures * 4, 10) },
    { name: "n.qzeros", dtype: "I32", shape: [groups, 1], bytes: randomBytes(groups * 4, 11) },
    floatTensor("n.scales", [groups, 8], scaleValues.slice(0, groups * 8), "F16"),
    {
      name: "n.g_idx",
      dtype: "I32",
      shape: [outFeatures],
      bytes: new Uint8Array(Int32Array.from(strided, (position) => Math.floor(position / groupSize)).buffer),
    },
  ];
  await mkdir(checkpointFolder, { recursive: true });
  await writeCheckpoint(checkpointFolder, { quantization_config: sample.config }, [...sample.tensors, ...consumer]);
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder });
  // As gate and up projection: two matrices, whose rows stay apart.
  const request = {
    name: "m",
    sources: ["m.weight", "m.weight"],
    shape: [2 * outFeatures, inFeatures],
    format: blocks,
  };
  const prepared = await prepareWeights(checkpoint, [request, { ...request, name: "sorted", rowOrder: "n.weight" }], {
    cacheFolder,
    numThreads: 1,
  });
  const bytesOf = async ({ file, byteOffset, byteLength }: StoredTensor): Promise<Buffer> =>
    (await readFile(file)).subarray(byteOffset, byteOffset + byteLength);
  const order = Array.from(strided.keys()).sort(
    (left, right) => Math.floor(strided[left]! / groupSize) - Math.floor(strided[right]! / groupSize) || left - right,
  );
  expect(order).not.toEqual([...order].sort((left, right) => left - right));
  for (const part of ["weight", "scales", "zeroPoints"] as const) {
    const [original, sorted] = [
      await bytesOf(prepared.get("m")![part]!),
      await bytesOf(prepared.get("sorted")![part]!),
    ];
    const rowBytes = original.length / (2 * outFeatures);
    const rows = [0, outFeatures].flatMap((start) => order.map((row) => start + row));
    const wanted = Buffer.concat(rows.map((row) => original.subarray(row * rowBytes, (row + 1) * rowBytes)));
    expect(sorted.equals(wanted)).toBe(true);
  }
});

test("a second start reads the packed form from the cache", async () => {
  await using folder = await createTemporaryFolder();
  const paths = pathsIn(folder.path);
  const first = await prepare(samples[0]![1], blocks, paths);
  const cached = join(paths.cacheFolder, "weights");
  const [name] = await readdir(cached);
  const { ino, mtimeMs } = await stat(join(cached, name!));
  const second = await prepare(samples[0]![1], blocks, { ...paths, folder: join(folder.path, "copy") });
  expect(second).toEqual(first);
  expect(await readdir(cached)).toEqual([name]);
  expect(await stat(join(cached, name!))).toMatchObject({ ino, mtimeMs });
});

function pathsIn(folder: string): PrepareOptions {
  return { folder: join(folder, "checkpoint"), cacheFolder: join(folder, "cache") };
}
