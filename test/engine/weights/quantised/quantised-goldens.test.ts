/** Checkpoints of every served method, compared with what PyTorch and the methods' own code make of them. */
import { hash } from "node:crypto";
import { open, readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";

import type { DtypeName } from "../../../../engine/contract/config.ts";
import { decodeModel } from "../../../../engine/graph/onnx-schema.ts";
import { linearForm } from "../../../../engine/models/kept-format.ts";
import { createPreparedSource } from "../../../../engine/models/weight-source.ts";
import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../../engine/weights/prepare-weights.ts";
import type { PreparedWeight, WeightFormat } from "../../../../engine/weights/prepared-weights.ts";
import type { StoredTensor } from "../../../../engine/weights/stored-tensor.ts";
import { dequantizeBlockwise } from "../../../support/checkpoints/dequantize.ts";
import { loadQuantisedCheckpoint, quantisedCheckpoints } from "../../../support/checkpoints/quantised-checkpoints.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { buildFrom } from "../../models/direct-build.ts";
import { DirectDecoder } from "../../models/direct-decoder.ts";
import { argmaxRows, decodeGolden, meanDivergence, relativeError } from "../../models/golden-decoding.ts";

const float32 = { kind: "plain", elementType: "float32" } as const;
const precision = {
  activations: "float32",
  linear: float32,
  head: float32,
  vision: float32,
  keepsIntegers: true,
} as const;

/** Checkpoints whose integers kernels take, and all others. */
const keptNames = quantisedCheckpoints.filter((name) => /^(?:awq|gptq|auto-round|ct-w|ct-mixed)/.test(name));
const dequantisedNames = quantisedCheckpoints.filter((name) => !keptNames.includes(name));

async function bytesOf({ file, byteOffset, byteLength }: StoredTensor): Promise<ArrayBuffer> {
  const bytes = new Uint8Array(byteLength);
  await using handle = await open(file);
  await handle.read(bytes, 0, byteLength, byteOffset);
  return bytes.buffer;
}

/** Weights of the checkpoint's quantised modules, in the form that `formOf` chooses. */
async function prepareModules(name: string, device: "cpu" | "cuda" | null) {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder, weightHashes } = loadQuantisedCheckpoint(name);
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder: cache.path });
  const weights = createPreparedSource(new Map(), checkpoint.tensors);
  const forms = new Map(
    Object.keys(weightHashes).map((module) => [
      module,
      device === null
        ? { format: float32, inputOrder: null }
        : linearForm({ weights, precision, device }, module, float32),
    ]),
  );
  const requests = [...forms].map(([module, { format }]) => ({
    name: module,
    sources: [`${module}.weight`],
    shape: checkpoint.tensors.get(`${module}.weight`)!.shape,
    format,
  }));
  const prepared = await prepareWeights(checkpoint, requests, { cacheFolder: cache.path, numThreads: 1 });
  const values = new Map<string, Float32Array>();
  for (const [module, { inputOrder }] of forms) {
    values.set(module, await floatsOf(prepared.get(module)!, inputOrder));
  }
  return { weightHashes, values, formats: [...forms.values()].map(({ format }) => format) };
}

async function floatsOf({ request, weight, scales, zeroPoints }: PreparedWeight, order: Int32Array | null) {
  const { format } = request;
  const [rows, columns] = request.shape as [number, number];
  const bytes = await bytesOf(weight);
  if (format.kind === "plain") return new Float32Array(bytes);
  const rowScales = new Float32Array(await bytesOf(scales!));
  if (format.kind === "stored-channels") {
    const codes = new Int8Array(bytes);
    return Float32Array.from({ length: rows * columns }, (_, index) => {
      const [row, column] = [Math.floor(index / columns), index % columns];
      return codes[column * rows + row]! * rowScales[row]!;
    });
  }
  if (format.kind !== "stored-blocks") throw new Error(`${request.name} was requested as ${format.kind}`);
  const packed = {
    weight: new Uint8Array(bytes),
    scales: rowScales,
    zeroPoints: zeroPoints && new Uint8Array(await bytesOf(zeroPoints)),
  };
  const sorted = dequantizeBlockwise(packed, rows, columns, format);
  const values = new Float32Array(sorted.length);
  sorted.forEach((value, index) => {
    const position = index % columns;
    values[index - position + (order === null ? position : order[position]!)] = value;
  });
  return values;
}

/** Zeros lose their sign, as in the recording. */
function hashesOf(values: ReadonlyMap<string, Float32Array>): Record<string, string> {
  return Object.fromEntries(
    [...values].map(([module, floats]) => [
      module,
      hash("sha256", new Uint8Array(floats.map((value) => value + 0).buffer)),
    ]),
  );
}

function kindsOf(formats: readonly WeightFormat[]): readonly string[] {
  return [...new Set(formats.map(({ kind }) => kind))].sort();
}

test.for(quantisedCheckpoints)("%s dequantises to the same bits as in PyTorch", async (name) => {
  const { weightHashes, values } = await prepareModules(name, null);
  expect(values.size).toBeGreaterThan(0);
  expect(hashesOf(values)).toEqual(weightHashes);
});

test.for(keptNames)("%s loses nothing when it is packed for the CPU's kernels", async (name) => {
  const { weightHashes, values, formats } = await prepareModules(name, "cpu");
  const kinds = {
    "ct-w8a8": ["stored-channels"],
    "ct-w8a8-experts": ["stored-channels"],
    "ct-mixed": ["stored-blocks", "stored-channels"],
  }[name];
  expect(kindsOf(formats)).toEqual(kinds ?? ["stored-blocks"]);
  expect(hashesOf(values)).toEqual(weightHashes);
});

test.for(keptNames)("%s loses nothing when it is packed for kernels of cuda", async (name) => {
  const { weightHashes, values, formats } = await prepareModules(name, "cuda");
  expect(kindsOf(formats)).toEqual(["stored-blocks"]);
  expect(formats.every((format) => format.kind === "stored-blocks" && format.blockSize === 32)).toBe(true);
  expect(hashesOf(values)).toEqual(weightHashes);
});

test.for(dequantisedNames)("%s is dequantised, because no kernel takes it", async (name) => {
  const { formats } = await prepareModules(name, "cpu");
  expect(kindsOf(formats)).toEqual(["plain"]);
});

/** How many products of each kind a decoder has. */
async function countProducts(name: string, dtype: DtypeName): Promise<Record<string, number>> {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = loadQuantisedCheckpoint(name);
  const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, dtype });
  const { graph } = decodeModel(await readFile(model.decoder.path));
  const counts: Record<string, number> = {};
  for (const { opType } of graph.node) {
    if (/^(?:MatMul.*|Gemm)$/.test(opType)) counts[opType] = (counts[opType] ?? 0) + 1;
  }
  return counts;
}

// In the first layer k_proj has floats, so q, k and v are not joined; in the second, the perceptron has floats.
test.for<[DtypeName, Record<string, number>]>([
  ["auto", { MatMulNBits: 7, Gemm: 5 }],
  ["int8", { MatMulNBits: 7, MatMulIntegerToFloat: 4 }],
  ["int4", { MatMulNBits: 10, MatMulIntegerToFloat: 1 }],
  ["float32", { Gemm: 15 }],
])("%s decides about the layers that awq leaves alone", async ([dtype, expected]) => {
  expect(await countProducts("awq-32-mixed", dtype)).toEqual(expected);
});

test("layers over one input are joined if their order is the same", async () => {
  // Of both layers, qkv and gate_up; the recording orders q, k and v of the second differently.
  expect(await countProducts("gptq-act-order", "auto")).toEqual({ MatMulNBits: 10, Gemm: 1 });
});

test("int8 quantises weights that were dequantised", async () => {
  expect(await countProducts("fp8-blocks", "int8")).toEqual({ MatMulIntegerToFloat: 5 });
});

describe.for(quantisedCheckpoints)("%s", (name) => {
  const { checkpointFolder, golden } = loadQuantisedCheckpoint(name);

  test("in float32 answers like transformers with dequantised weights", async () => {
    await using cache = await createTemporaryFolder();
    const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, dtype: "float32" });
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 64 });
    for (const chunkSize of [64, 7]) {
      const logits = decodeGolden(decoder, model, golden, chunkSize);
      expect(relativeError(logits, golden.logits)).toBeLessThan(1e-5);
      expect(argmaxRows(logits, model.decoder.vocabSize)).toEqual(golden.greedyTokenIds);
    }
  });

  // Kernels round activations to 8 bits, per block or per token. Measured: 0.0004 to 0.002.
  test("with the checkpoint's own integers stays close to it", async () => {
    await using cache = await createTemporaryFolder();
    const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, dtype: "auto" });
    using decoder = new DirectDecoder(model, { numSlots: 1, maxLength: 64 });
    const logits = decodeGolden(decoder, model, golden, 64);
    expect(meanDivergence(golden.logits, logits, model.decoder.vocabSize)).toBeLessThan(0.01);
  });
});
