/** One layer of the CPU reference of paged attention against the same in scalar arithmetic. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDecoderInputs } from "../../../engine/models/decoder-graph/create-decoder-inputs.ts";
import { createRotary } from "../../../engine/models/decoder-graph/rotary.ts";
import { createGraphContext } from "../../../engine/models/graph-context.ts";
import { precisionOf } from "../../../engine/models/precision.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

interface Shape {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly blockSize: number;
  readonly window: number | null;
}

interface Batch {
  readonly numBlocks: number;
  readonly numColumns: number;
  /** Tokens before the run, new tokens, and blocks of each sequence. */
  readonly sequences: readonly { readonly past: number; readonly added: number; readonly blocks: readonly number[] }[];
}

/** Numbers in [-2, 2) from a linear congruential generator, so that a failure can be repeated. */
function randomNumbers(count: number, seed: number): Float32Array {
  let state = seed;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 30 - 2;
  });
}

interface Layer {
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly keyCache: Float32Array;
  readonly valueCache: Float32Array;
}

/** In double precision; writes new keys and values into copies of the caches, then attends. */
function scalarReference(
  { numHeads, numKvHeads, headDim, blockSize, window }: Shape,
  { sequences }: Batch,
  { query, key, value, ...caches }: Layer,
): { readonly output: number[]; readonly keyCache: Float32Array; readonly valueCache: Float32Array } {
  const keyCache = caches.keyCache.slice();
  const valueCache = caches.valueCache.slice();
  const width = numKvHeads * headDim;
  const slotAt = (blocks: readonly number[], position: number): number =>
    (blocks[Math.floor(position / blockSize)]! * blockSize + (position % blockSize)) * width;
  let token = 0;
  for (const { past, added, blocks } of sequences) {
    for (let position = past; position < past + added; position++, token++) {
      keyCache.set(key.subarray(token * width, (token + 1) * width), slotAt(blocks, position));
      valueCache.set(value.subarray(token * width, (token + 1) * width), slotAt(blocks, position));
    }
  }
  const output: number[] = [];
  token = 0;
  for (const { past, added, blocks } of sequences) {
    for (let position = past; position < past + added; position++, token++) {
      const first = window === null ? 0 : Math.max(0, position - window + 1);
      for (let head = 0; head < numHeads; head++) {
        const kvHead = Math.floor((head * numKvHeads) / numHeads);
        const seen = Array.from({ length: position - first + 1 }, (_, index) => slotAt(blocks, first + index));
        const scores = seen.map((slot) => {
          let score = 0;
          for (let dim = 0; dim < headDim; dim++) {
            score += query[(token * numHeads + head) * headDim + dim]! * keyCache[slot + kvHead * headDim + dim]!;
          }
          return score / Math.sqrt(headDim);
        });
        const largest = Math.max(...scores);
        const shares = scores.map((score) => Math.exp(score - largest));
        const total = shares.reduce((sum, share) => sum + share, 0);
        for (let dim = 0; dim < headDim; dim++) {
          output.push(
            seen.reduce((sum, slot, index) => sum + shares[index]! * valueCache[slot + kvHead * headDim + dim]!, 0) /
              total,
          );
        }
      }
    }
  }
  return { output, keyCache, valueCache };
}

/** Writes a graph that is one layer of attention, with rotary tables that turn nothing. */
async function writeLayer(
  folder: string,
  { numHeads, numKvHeads, headDim, blockSize, window }: Shape,
  isPacked: boolean,
): Promise<string> {
  const context = createGraphContext("layer", {
    weights: imaginedWeights,
    precision: precisionOf("float32", "cpu"),
    device: "cpu",
    kvLayout: { kind: "paged", blockSize },
  });
  const { graph } = context;
  const inputs = createDecoderInputs(context);
  const rope = { theta: 1e300, scaling: { kind: "linear", factor: Infinity } } as const;
  const rotary = createRotary(context, { rope, rotaryDim: headDim, maxModelLen: 256, factor: 1 });
  const widths = { query: numHeads * headDim, key: numKvHeads * headDim, value: numKvHeads * headDim };
  const rows = (name: string, width: number) => graph.input(name, "float32", ["N", width]);
  const output = inputs.attend({
    name: "output",
    layer: 0,
    projected: isPacked
      ? { kind: "packed", value: rows("packed", widths.query + 2 * widths.key) }
      : { kind: "separate", values: Object.entries(widths).map(([name, width]) => rows(name, width)) },
    rotary,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: window,
    scale: null,
  });
  graph.output(output);
  const path = join(folder, "layer.onnx");
  await writeFile(path, graph.encode());
  return path;
}

const shape: Shape = { numHeads: 4, numKvHeads: 2, headDim: 16, blockSize: 16, window: null };
const mixed: Batch = {
  numBlocks: 12,
  numColumns: 4,
  // A prompt, a decode, nothing at all, a chunk that shares the decode's first block, and a decode on a block's edge.
  sequences: [
    { past: 0, added: 20, blocks: [7, 2] },
    { past: 33, added: 1, blocks: [5, 0, 9] },
    { past: 18, added: 0, blocks: [5, 8] },
    { past: 17, added: 5, blocks: [5, 3] },
    { past: 16, added: 1, blocks: [11, 10] },
  ],
};
const single: Batch = { numBlocks: 3, numColumns: 9, sequences: [{ past: 40, added: 1, blocks: [2, 0, 1] }] };

const cases: readonly {
  readonly claim: string;
  readonly shape: Shape;
  readonly batch: Batch;
  readonly isPacked?: true;
}[] = [
  { claim: "a mixed batch", shape, batch: mixed },
  { claim: "a mixed batch of packed projections", shape, batch: mixed, isPacked: true },
  { claim: "a window shorter than a block", shape: { ...shape, window: 5 }, batch: mixed },
  { claim: "a window longer than most sequences", shape: { ...shape, window: 30 }, batch: mixed },
  { claim: "a window of one token", shape: { ...shape, window: 1 }, batch: mixed },
  { claim: "eight heads over one", shape: { ...shape, numHeads: 8, numKvHeads: 1 }, batch: mixed },
  { claim: "heads that share nothing", shape: { ...shape, numKvHeads: 4, headDim: 24 }, batch: mixed },
  { claim: "one sequence and a wide table", shape, batch: single },
  { claim: "blocks of 32 tokens", shape: { ...shape, blockSize: 32 }, batch: mixed },
];

test.for(cases)(
  "$claim gives the outputs and caches of scalar arithmetic",
  async ({ shape, batch, isPacked = false }) => {
    await using folder = await createTemporaryFolder();
    const { numHeads, numKvHeads, headDim, blockSize } = shape;
    const { sequences, numBlocks, numColumns } = batch;
    const numTokens = sequences.reduce((sum, { added }) => sum + added, 0);
    const cacheShape = [numBlocks, blockSize, numKvHeads, headDim];
    const cacheSize = cacheShape.reduce((product, size) => product * size);
    const layer: Layer = {
      query: randomNumbers(numTokens * numHeads * headDim, 1),
      key: randomNumbers(numTokens * numKvHeads * headDim, 2),
      value: randomNumbers(numTokens * numKvHeads * headDim, 3),
      keyCache: randomNumbers(cacheSize, 4),
      valueCache: randomNumbers(cacheSize, 5),
    };
    const expected = scalarReference(shape, batch, layer);

    const path = await writeLayer(folder.path, shape, isPacked);
    using session = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder: folder.path });
    using binding = session.createBinding();
    const bind = (name: string, tensor: Tensor): void => binding.bindInput(name, tensor);
    const rows = (name: string, values: Float32Array): void =>
      bind(name, Tensor.fromTypedArray("float32", values, [numTokens, values.length / numTokens]));
    const int32 = (name: string, values: readonly number[], dimensions: readonly number[]): void =>
      bind(name, Tensor.fromTypedArray("int32", Int32Array.from(values), dimensions));
    if (isPacked) {
      const parts = [layer.query, layer.key, layer.value];
      const packed = Array.from({ length: numTokens }, (_, token) =>
        parts.flatMap((part) => {
          const width = part.length / numTokens;
          return Array.from(part.subarray(token * width, (token + 1) * width));
        }),
      );
      rows("packed", Float32Array.from(packed.flat()));
    } else {
      rows("query", layer.query);
      rows("key", layer.key);
      rows("value", layer.value);
    }
    const cumulative = [0];
    for (const { added } of sequences) cumulative.push(cumulative.at(-1)! + added);
    bind("input_ids", Tensor.fromTypedArray("int64", new BigInt64Array(numTokens), [numTokens]));
    bind("logit_rows", Tensor.fromTypedArray("int64", new BigInt64Array(0), [0]));
    int32("cumulative_lengths", cumulative, [cumulative.length]);
    int32(
      "past_lengths",
      sequences.map(({ past }) => past),
      [sequences.length],
    );
    const table = sequences.flatMap(({ blocks }) =>
      Array.from({ length: numColumns }, (_, index) => blocks[index] ?? -1),
    );
    int32("block_table", table, [sequences.length, numColumns]);
    for (const part of ["key", "value"] as const) {
      const tensor = Tensor.fromTypedArray("float32", layer[`${part}Cache`], cacheShape);
      binding.bindInput(`past.0.${part}`, tensor);
      binding.bindOutput(`present.0.${part}`, tensor);
    }
    const made = new Float32Array(expected.output.length);
    binding.bindOutput("output.flat", Tensor.fromTypedArray("float32", made, [numTokens, numHeads * headDim]));
    binding.run();

    const largestError = made.reduce(
      (most, value, index) => Math.max(most, Math.abs(value - expected.output[index]!)),
      0,
    );
    expect(largestError).toBeLessThan(1e-5);
    expect(layer.keyCache).toEqual(expected.keyCache);
    expect(layer.valueCache).toEqual(expected.valueCache);
  },
);
