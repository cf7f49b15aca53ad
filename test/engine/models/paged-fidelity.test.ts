import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { BuiltModel } from "../../../engine/models/built-model.ts";
import type { KvPrecision } from "../../../engine/models/graph-context.ts";
import { roundedToFloat8 } from "../../gpu/numbers.ts";
import { loadGoldens, pagedGoldenNames, type GoldenCase, type Goldens } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder, type TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";
import { DirectDecoder } from "./direct-decoder.ts";
import { DirectPagedDecoder, type SequenceRun } from "./direct-paged-decoder.ts";
import { decodeGolden, meanDivergence, relativeError } from "./golden-decoding.ts";

// Share of the logit range that the two graphs may differ by, both in single precision.
const tolerance = 1e-5;
const maxLength = 512;
const numBlocks = 200;

/** What a sequence computes from one of its tokens to another, all of them given. */
function runOf(
  model: BuiltModel,
  golden: GoldenCase,
  blocks: readonly number[],
  [start, end]: readonly [start: number, end: number],
): SequenceRun {
  const tokenIds = [...golden.promptTokenIds, ...golden.greedyTokenIds];
  let numImageTokens = 0;
  const rows = tokenIds.map((id, place) =>
    place < golden.promptTokenIds.length && id === model.imageTokenId ? numImageTokens++ : -1,
  );
  return {
    tokenIds: tokenIds.slice(start, end),
    numComputed: start,
    blocks,
    imageRows: rows.slice(start, end),
    ...(golden.positions && { positions: golden.positions.map((axis) => axis.slice(start, end)) }),
  };
}

/** The rows of a golden's logits are of its prompt's last token and of all but the last of the answer's. */
function numGiven({ promptTokenIds, greedyTokenIds }: GoldenCase): number {
  return promptTokenIds.length + greedyTokenIds.length - 1;
}

/** As many blocks as the sequence needs, in an order of their own. */
function blocksFor(numTokens: number, blockSize: number, first = 0): number[] {
  const blocks = Array.from({ length: Math.ceil(numTokens / blockSize) }, (_, index) => first + index);
  return [...blocks.filter((block) => block % 2 === 1).toReversed(), ...blocks.filter((block) => block % 2 === 0)];
}

/** Chunks of the prompt, then token by token as `chunkSize` 1 would go on. Row-major [32, vocabSize]. */
function decodePaged(
  model: BuiltModel,
  golden: GoldenCase,
  { chunkSize, blockSize }: { readonly chunkSize: number; readonly blockSize: number },
): Float32Array {
  const imagePool = golden.imageFeatures;
  // The first two blocks belong to neighbours, and no run has written them.
  const blocks = blocksFor(numGiven(golden), blockSize, 2);
  using decoder = new DirectPagedDecoder(model, { numBlocks: blocks.length + 2, ...(imagePool && { imagePool }) });
  const { vocabSize } = model.decoder;
  const logits = new Float32Array(golden.greedyTokenIds.length * vocabSize);
  const promptLength = golden.promptTokenIds.length;
  for (let start = 0; start < promptLength; start += chunkSize) {
    const end = Math.min(start + chunkSize, promptLength);
    const logitRows = end === promptLength ? [end - start - 1] : [];
    const made = decoder.run({ sequences: [runOf(model, golden, blocks, [start, end])], logitRows });
    logits.set(made);
  }
  for (let place = promptLength; place < numGiven(golden); place++) {
    const sequences = [runOf(model, golden, blocks, [place, place + 1])];
    logits.set(decoder.run({ sequences, logitRows: [0], spareColumns: 3 }), (place - promptLength + 1) * vocabSize);
  }
  return logits;
}

test.for(
  ["llama", "qwen2-vl", "fuyu"].flatMap((name) => (["int8", "int4"] as const).map((dtype) => ({ name, dtype }))),
)("$name in $dtype stays near the logits of slots in the same", async ({ name, dtype }) => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder, cases } = await loadGoldens(name);
  const options = { cacheFolder: cache.path, dtype };
  const slots = await buildFrom(checkpointFolder, options);
  const paged = await buildFrom(checkpointFolder, { ...options, kvLayout: { kind: "paged", blockSize: 16 } });
  using decoder = new DirectDecoder(slots, { numSlots: 1, maxLength });
  const expected = decodeGolden(decoder, slots, cases[0]!, maxLength);
  const logits = decodePaged(paged, cases[0]!, { chunkSize: 7, blockSize: 16 });
  // Activations that lie between two of 256 steps are rounded to one of them by the last bit.
  expect(meanDivergence(expected, logits, slots.decoder.vocabSize)).toBeLessThan(0.01);
});

// Measured divergence: 0.0005 to 0.09.
test.for(["llama", "qwen2", "qwen3", "mistral", "llava-default", "smolvlm", "qwen2-vl", "fuyu"])(
  "%s with 8-bit floats in its blocks stays close to transformers' float32, in chunks of any size",
  async (name) => {
    await using cache = await createTemporaryFolder();
    const { checkpointFolder, cases } = await loadGoldens(name);
    const kvLayout = { kind: "paged", blockSize: 16 } as const;
    const kvPrecision = { kind: "fp8" } as const;
    const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, kvLayout, kvPrecision });
    const { vocabSize } = model.decoder;
    expect(model.decoder).toMatchObject({ storesFp8: true, kvElementType: "float32" });
    for (const golden of cases) {
      const logits = decodePaged(model, golden, { chunkSize: 7, blockSize: 16 });
      expect(meanDivergence(golden.logits, logits, vocabSize)).toBeLessThan(0.2);
      expect(relativeError(logits, golden.logits)).toBeGreaterThan(tolerance);
      const whole = decodePaged(model, golden, { chunkSize: maxLength, blockSize: 16 });
      expect(meanDivergence(whole, logits, vocabSize)).toBeLessThan(0.01);
    }
  },
);

test("a key or value that 8-bit floats have is stored as it is, and others as the nearest one", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder, cases } = await loadGoldens("llama");
  const kvLayout = { kind: "paged", blockSize: 16 } as const;
  const build = (kvPrecision: KvPrecision): Promise<BuiltModel> =>
    buildFrom(checkpointFolder, { cacheFolder: cache.path, kvLayout, kvPrecision });
  const [golden] = cases;
  const firstValues = async (kvPrecision: KvPrecision): Promise<Float32Array> => {
    using decoder = new DirectPagedDecoder(await build(kvPrecision), { numBlocks: 9 });
    decoder.run({ sequences: [runOf(await build(kvPrecision), golden!, [0], [0, 9])], logitRows: [] });
    const { numKvHeads, headDim } = (await build(kvPrecision)).decoder;
    return decoder.caches.get("0.value")!.subarray(0, 9 * numKvHeads * headDim);
  };
  const exact = await firstValues({ kind: "activations" });
  const stored = await firstValues({ kind: "fp8" });
  // The first layer's values do not depend on the cache.
  expect(stored).toEqual(roundedToFloat8(exact));
  expect(stored).not.toEqual(exact);
});

describe.for([...pagedGoldenNames, "qwen3-moe"])("%s over a paged cache", (name) => {
  let goldens: Goldens;
  let cache: TemporaryFolder;
  let slots: BuiltModel;
  let paged: BuiltModel;
  const expected = new Map<string, Float32Array>();

  beforeAll(async () => {
    goldens = await loadGoldens(name);
    cache = await createTemporaryFolder();
    const options = { cacheFolder: cache.path };
    slots = await buildFrom(goldens.checkpointFolder, options);
    paged = await buildFrom(goldens.checkpointFolder, { ...options, kvLayout: { kind: "paged", blockSize: 16 } });
    using decoder = new DirectDecoder(slots, { numSlots: 1, maxLength });
    for (const golden of goldens.cases) expected.set(golden.name, decodeGolden(decoder, slots, golden, maxLength));
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  test.for([maxLength, 1, 5, 16])("computes the logits of slots from prompts in chunks of %i tokens", (chunkSize) => {
    for (const golden of goldens.cases) {
      const logits = decodePaged(paged, golden, { chunkSize, blockSize: 16 });
      expect(relativeError(logits, expected.get(golden.name)!)).toBeLessThan(tolerance);
    }
  });

  test.for([1, 8, 64])("computes the same with blocks of %i tokens", async (blockSize) => {
    const kvLayout = { kind: "paged", blockSize } as const;
    const model = await buildFrom(goldens.checkpointFolder, { cacheFolder: cache.path, kvLayout });
    const golden = goldens.cases[0]!;
    const logits = decodePaged(model, golden, { chunkSize: 7, blockSize });
    expect(relativeError(logits, expected.get(golden.name)!)).toBeLessThan(tolerance);
  });

  test("computes prompts, chunks and decodes of all sequences in one run, with a shared prefix", () => {
    const blockSize = 16;
    const golden = goldens.cases.toSorted(
      (left, right) => right.promptTokenIds.length - left.promptTokenIds.length,
    )[0]!;
    const logits = expected.get(golden.name)!;
    const { vocabSize } = paged.decoder;
    const promptLength = golden.promptTokenIds.length;
    const length = numGiven(golden);
    const numOwn = Math.ceil(length / blockSize);
    const imagePool = golden.imageFeatures;
    using decoder = new DirectPagedDecoder(paged, { numBlocks, ...(imagePool && { imagePool }) });

    // The first sequence computes all but its last three tokens; the others share its first block.
    const first = blocksFor(length, blockSize, 10);
    decoder.run({ sequences: [runOf(paged, golden, first, [0, length - 3])], logitRows: [] });
    const sharedPrefix = (start: number): number[] => [
      first[0]!,
      ...Array.from({ length: numOwn - 1 }, (_, index) => start + numOwn - index),
    ];
    const second = sharedPrefix(60);
    const third = sharedPrefix(120);
    decoder.run({ sequences: [runOf(paged, golden, second, [blockSize, length - 1])], logitRows: [] });

    const middle = Math.min(promptLength, blockSize + 5);
    const sequences = [
      runOf(paged, golden, first, [length - 3, length]),
      // Has nothing to compute in this run.
      runOf(paged, golden, third, [blockSize, blockSize]),
      runOf(paged, golden, second, [length - 1, length]),
      runOf(paged, golden, third, [blockSize, length]),
      runOf(paged, golden, blocksFor(middle, blockSize, 170), [0, middle]),
    ];
    const lastRow = (index: number): number =>
      sequences.slice(0, index + 1).reduce((sum, { tokenIds }) => sum + tokenIds.length, 0) - 1;
    const rowsOfLast = [lastRow(0), lastRow(2), lastRow(3)];
    const made = decoder.run({ sequences, logitRows: [...rowsOfLast, 0], spareColumns: 2 });
    const rowAt = (place: number): Float32Array => {
      const row = place - promptLength + 1;
      return logits.subarray(row * vocabSize, (row + 1) * vocabSize);
    };
    for (const [index] of rowsOfLast.entries()) {
      const row = made.subarray(index * vocabSize, (index + 1) * vocabSize);
      expect(relativeError(row, rowAt(length - 1))).toBeLessThan(tolerance);
    }
    expect(relativeError(made.subarray(3 * vocabSize), rowAt(length - 3))).toBeLessThan(tolerance);
  });

  test("fails where a token's block is not mapped", () => {
    const golden = goldens.cases[0]!;
    using decoder = new DirectPagedDecoder(paged, { numBlocks });
    const run = { ...runOf(paged, golden, [-1], [0, 2]), imageRows: [-1, -1] };
    expect(() => decoder.run({ sequences: [run], logitRows: [1] })).toThrow(/ind/);
  });
});
