/** Checkpoints that keep their integers and have 8-bit weights beside them for prompts and large batches. */
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";

import type { DtypeName } from "../../../../engine/contract/config.ts";
import { decodeModel, type GraphProto } from "../../../../engine/graph/onnx-schema.ts";
import type { BuiltModel } from "../../../../engine/models/built-model.ts";
import {
  MIN_SEQUENCES_BESIDE_8_BITS,
  MIN_SEQUENCES_IN_8_BITS,
} from "../../../../engine/models/decoder-graph/run-kinds.ts";
import { modelCosts } from "../../../../engine/models/model-costs.ts";
import type { WidenedLayers } from "../../../../engine/models/precision.ts";
import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { loadQuantisedCheckpoint } from "../../../support/checkpoints/quantised-checkpoints.ts";
import { configureGraphs } from "../../../support/engine/shipped-models.ts";
import { createTemporaryFolder, type TemporaryFolder } from "../../../support/temporary-folder.ts";
import { buildFrom } from "../../models/direct-build.ts";
import { DirectDecoder } from "../../models/direct-decoder.ts";
import { decodeGolden, meanDivergence, relativeError } from "../../models/golden-decoding.ts";

const names = [
  "awq-128",
  "awq-64",
  "awq-32-mixed",
  "gptq-128",
  "gptq-act-order",
  "gptq-v2",
  "gptq-borrowed",
  "gptq-8bit",
  "gptq-dynamic",
  "ct-w4a16",
  "ct-w4a16-asymmetric",
  "ct-w4a16-act-order",
  "ct-w8a16",
  "ct-mixed",
];
const maxLength = 64;

let cache: TemporaryFolder;
beforeAll(async () => {
  cache = await createTemporaryFolder();
  return () => cache[Symbol.asyncDispose]();
});

function build(name: string, widenedLayers: WidenedLayers, dtype: DtypeName = "auto"): Promise<BuiltModel> {
  return buildFrom(loadQuantisedCheckpoint(name).checkpointFolder, { cacheFolder: cache.path, dtype, widenedLayers });
}

const openDecoder = (model: BuiltModel, numSlots = 1): DirectDecoder =>
  new DirectDecoder(model, { numSlots, maxLength });

/** The two branches of the graph, of which a run computes one. */
async function branchesOf({
  decoder,
}: BuiltModel): Promise<{ readonly wide: GraphProto; readonly narrow: GraphProto }> {
  const { graph } = decodeModel(await readFile(decoder.path));
  const branch = (name: string): GraphProto =>
    graph.node.find(({ opType }) => opType === "If")!.attribute.find((attribute) => attribute.name === name)!.g!;
  return { wide: branch("then_branch"), narrow: branch("else_branch") };
}

/** How many nodes of each kind a graph has. */
function countNodes({ node }: GraphProto, kinds: RegExp): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { opType, name } of node) {
    const kind = name.endsWith(".ordered") ? "ordered" : opType;
    if (kinds.test(kind)) counts[kind] = (counts[kind] ?? 0) + 1;
  }
  return counts;
}

describe.for(names)("%s", (name) => {
  const { golden } = loadQuantisedCheckpoint(name);
  const { promptTokenIds, greedyTokenIds } = golden;

  test("a prompt of all tokens stays close to dequantised weights in PyTorch, and is computed with other weights", async () => {
    const tokenIds = [[...promptTokenIds, ...greedyTokenIds.slice(0, -1)]];
    const logitRows = greedyTokenIds.map((_, index) => promptTokenIds.length - 1 + index);
    const [logits, stored] = await Promise.all(
      (["all", "none"] as const).map(async (widened) => {
        using decoder = openDecoder(await build(name, widened));
        return decoder.run({ tokenIds, numComputed: [0], logitRows });
      }),
    );
    expect(meanDivergence(golden.logits, logits!, 64)).toBeLessThan(0.01);
    expect(logits).not.toEqual(stored);
  });

  test("newest tokens of one sequence are computed with the stored integers, to the bit", async () => {
    const [widened, stored] = await Promise.all(
      (["all", "none"] as const).map(async (layers) => {
        const model = await build(name, layers);
        using decoder = openDecoder(model);
        return decodeGolden(decoder, model, golden, 1);
      }),
    );
    expect(widened).toEqual(stored);
  });

  test("a prompt in chunks gives the same answer as at once", async () => {
    const model = await build(name, "all");
    using decoder = openDecoder(model);
    const whole = decodeGolden(decoder, model, golden, maxLength);
    expect(meanDivergence(golden.logits, whole, 64)).toBeLessThan(0.01);
    for (const chunkSize of [5, 7]) {
      expect(relativeError(decodeGolden(decoder, model, golden, chunkSize), whole)).toBeLessThan(1e-6);
    }
  });
});

test.for([
  ["gptq-act-order", MIN_SEQUENCES_IN_8_BITS],
  // Stored integers of 8 bits are slower from two sequences on.
  ["gptq-8bit", MIN_SEQUENCES_BESIDE_8_BITS],
  ["ct-w8a16", MIN_SEQUENCES_BESIDE_8_BITS],
  // Of 4 and 8 bits.
  ["gptq-dynamic", MIN_SEQUENCES_IN_8_BITS],
] as const)(
  "%s: newest tokens of %i sequences are computed like prompts, and fewer with the stored integers",
  async ([name, numSlots]) => {
    const [model, stored] = [await build(name, "all"), await build(name, "none")];
    const firstTokens = (of: BuiltModel, tokenIds: readonly (readonly number[])[]): Float32Array => {
      using decoder = openDecoder(of, numSlots);
      return decoder.run({ tokenIds, numComputed: tokenIds.map(() => 0), logitRows: tokenIds.map((_, row) => row) });
    };
    const batch = Array.from({ length: numSlots }, (_, index) => [index + 2]);
    const together = firstTokens(model, batch);
    for (const [index, [token]] of batch.entries()) {
      using decoder = openDecoder(model);
      const inPrompt = decoder.run({ tokenIds: [[token!, token!]], numComputed: [0], logitRows: [0] });
      expect(relativeError(together.subarray(index * 64, (index + 1) * 64), inPrompt)).toBeLessThan(1e-5);
    }
    const fewer = batch.slice(1);
    expect(firstTokens(model, fewer)).toEqual(firstTokens(stored, fewer));
    expect(together).not.toEqual(firstTokens(stored, batch));
  },
);

const products = /^(?:MatMul.*|Gemm|ordered)$/;

// What is not quantised in awq-32-mixed: k_proj of the first layer, the perceptron of the second, and the head.
test.for<[string, DtypeName, WidenedLayers, Record<string, number>, Record<string, number>]>([
  ["awq-32-mixed", "auto", "all", { MatMulIntegerToFloat: 7, Gemm: 5 }, { MatMulNBits: 7, Gemm: 5 }],
  ["awq-32-mixed", "int8", "all", { MatMulIntegerToFloat: 9 }, { MatMulNBits: 7, MatMulIntegerToFloat: 4 }],
  ["awq-32-mixed", "int4", "all", { MatMulIntegerToFloat: 9 }, { MatMulNBits: 10, MatMulIntegerToFloat: 1 }],
  [
    "awq-32-mixed",
    "int4",
    "own",
    { MatMulNBits: 7, MatMulIntegerToFloat: 4 },
    { MatMulNBits: 10, MatMulIntegerToFloat: 1 },
  ],
  // W8A8 has one form.
  [
    "ct-mixed",
    "auto",
    "all",
    { MatMulIntegerToFloat: 7, Gemm: 2 },
    { MatMulNBits: 3, MatMulIntegerToFloat: 4, Gemm: 2 },
  ],
  // Columns of 8-bit weights are in the order of the checkpoint, so that query, key and value are one matrix.
  ["gptq-act-order", "auto", "all", { MatMulIntegerToFloat: 8, Gemm: 1 }, { MatMulNBits: 10, ordered: 7, Gemm: 1 }],
])("%s in %s widens %s layers", async ([name, dtype, widened, ofWide, ofNarrow]) => {
  const { wide, narrow } = await branchesOf(await build(name, widened, dtype));
  expect(countNodes(wide, products)).toEqual(ofWide);
  expect(countNodes(narrow, products)).toEqual(ofNarrow);
});

test("a graph has no branch for prompts if none of the layers that Fovea quantises would differ in it", async () => {
  const stored = await build("awq-64", "own", "int4");
  expect(stored.decoder).not.toHaveProperty("widensPrompts");
  expect(stored.decoder.path).toBe((await build("awq-64", "none", "int4")).decoder.path);
  expect((await build("awq-32-mixed", "own", "int4")).decoder).toHaveProperty("widensPrompts", true);
});

test("8-bit weights are made once, and take the memory that is planned: a byte per weight and a scale per output", async () => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder } = loadQuantisedCheckpoint("awq-64");
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder: folder.path });
  const [all, none] = (["all", "none"] as const).map((widenedLayers) => {
    const options = { dtype: "auto", device: "cpu", maxModelLen: null, widenedLayers } as const;
    return modelCosts(checkpoint, configureGraphs(checkpoint.config, options)).weights.decoder;
  });
  let bytes = 0;
  for (const { shape, quantised } of checkpoint.tensors.values()) {
    if (quantised !== undefined) bytes += shape[0]! * shape[1]! + 4 * shape[0]!;
  }
  expect(bytes).toBeGreaterThan(0);
  expect(all! - none!).toBe(bytes);

  const built = async () => {
    await buildFrom(checkpointFolder, { cacheFolder: folder.path, dtype: "auto", widenedLayers: "all" });
    const weights = join(folder.path, "weights");
    return Promise.all(
      (await readdir(weights)).map(async (name) => ({ name, ino: (await stat(join(weights, name))).ino })),
    );
  };
  const first = await built();
  expect(first).toHaveLength(1);
  expect(await built()).toEqual(first);
});
