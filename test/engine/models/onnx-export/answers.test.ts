/** Whole engines over ready-made exports, from a request with pictures to its tokens. */
import { copyFile, mkdir, readdir, symlink } from "node:fs/promises";
import { dirname, extname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";

import { openCheckpoint } from "../../../../engine/weights/checkpoint.ts";
import { loadGoldens } from "../../../support/checkpoints/goldens.ts";
import { buildModel } from "../../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { chat } from "../golden-prompts.ts";
import { ask, exports, startExport } from "./export-engine.ts";

// Fraction of the logit range by which our single precision may differ from transformers'.
const tolerance = 1e-4;
const longest = 512;

describe.for(exports)("$name", ({ name, toPrompt }) => {
  test.for([1, 16, longest])("prompts in chunks of %i tokens give the tokens of transformers", async (chunk) => {
    await using cache = await createTemporaryFolder();
    const { cases } = await loadGoldens(name);
    const engine = await startExport(name, cache.path, { maxNumBatchedTokens: chunk, enablePrefixCaching: false });
    try {
      for (const golden of cases) {
        expect((await ask(engine, toPrompt, golden)).tokenIds).toEqual(golden.greedyTokenIds);
      }
    } finally {
      await engine.close();
    }
  });

  test("eight sequences at once get the same tokens as alone, and again in slots that were used", async () => {
    await using cache = await createTemporaryFolder();
    const { cases } = await loadGoldens(name);
    const engine = await startExport(name, cache.path, { maxNumSequences: 8, maxNumBatchedTokens: 24 });
    try {
      const asked = Array.from({ length: 8 }, (_, index) => cases[index % cases.length]!);
      const answers = await Promise.all(
        asked.map((golden, index) => ask(engine, toPrompt, golden, { requestId: `${golden.name}-${index}` })),
      );
      expect(answers.map(({ tokenIds }) => tokenIds)).toEqual(asked.map(({ greedyTokenIds }) => greedyTokenIds));
      for (const golden of cases) {
        const { tokenIds, numCachedTokens } = await ask(engine, toPrompt, golden);
        expect(tokenIds).toEqual(golden.greedyTokenIds);
        expect(numCachedTokens).toBe(golden.promptTokenIds.length - 1);
      }
    } finally {
      await engine.close();
    }
  });

  test("logits equal those of transformers", async () => {
    await using cache = await createTemporaryFolder();
    const { cases } = await loadGoldens(name);
    const engine = await startExport(name, cache.path);
    try {
      for (const golden of cases) {
        const { logprobs } = await ask(engine, toPrompt, golden, { logprobs: 20 });
        const { vocabSize } = engine.modelInfo!;
        const numRows = golden.logits.length / vocabSize;
        expect(numRows).toBeGreaterThan(1);
        for (let row = 0; row < numRows; row++) {
          const expected = golden.logits.subarray(row * vocabSize, (row + 1) * vocabSize);
          const norm = Math.log(expected.reduce((sum, logit) => sum + Math.exp(logit), 0));
          const range = Math.max(...expected) - Math.min(...expected);
          expect(logprobs[row]!.top).toHaveLength(20);
          for (const { tokenId, logprob } of logprobs[row]!.top) {
            expect(Math.abs(logprob - (expected[tokenId]! - norm))).toBeLessThan(tolerance * range);
          }
        }
      }
    } finally {
      await engine.close();
    }
  });
});

test.for([
  { name: "onnx-exports/llava", dtype: "int8" },
  { name: "onnx-exports/llava", dtype: "int4" },
  { name: "onnx-exports/smolvlm", dtype: "float16" },
] as const)("$name in $dtype answers as onnxruntime does with that variant", async ({ name, dtype }) => {
  await using cache = await createTemporaryFolder();
  const { cases } = await loadGoldens(name);
  const { toPrompt } = exports.find((candidate) => candidate.name === name)!;
  // Scales of activations are shared by all tokens of a run, so prompts are computed whole as in the recording.
  const whole = { maxNumBatchedTokens: longest, enablePrefixCaching: false };
  const engine = await startExport(name, cache.path, { dtype, ...whole });
  try {
    for (const golden of cases) {
      const { tokenIds } = await ask(engine, toPrompt, golden);
      expect(tokenIds).toEqual(golden.variantTokenIds?.[dtype]);
      expect(tokenIds).toHaveLength(golden.greedyTokenIds.length);
    }
  } finally {
    await engine.close();
  }
});

test.for([
  { name: "onnx-exports/llava", dtype: "float32", padding: "front" },
  { name: "onnx-exports/llava", dtype: "int4", padding: "front" },
  { name: "onnx-exports/smolvlm", dtype: "float32", padding: "back" },
  // With one scale for the activations of all sequences of a run, each would depend on the others.
  { name: "onnx-exports/llava", dtype: "int8", padding: null },
  // Positions would be counted from the padding on.
  { name: "onnx-exports/llama", dtype: "float32", padding: null },
] as const)("$name in $dtype decodes sequences together with padding: $padding", async ({ name, dtype, padding }) => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens(name);
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder: cache.path });
  const options = { dtype, device: "cpu", maxModelLen: null, cacheFolder: cache.path, numThreads: 1 } as const;
  expect((await buildModel(checkpoint, options)).decoder).toMatchObject({ form: "export", padding });
});

test("an export in a hub cache, where every file is a link named by content, is served", async () => {
  await using folder = await createTemporaryFolder();
  const { checkpointFolder, cases } = await loadGoldens("onnx-exports/smolvlm");
  const [blobs, snapshot] = [join(folder.path, "blobs"), join(folder.path, "snapshots", "main")];
  await mkdir(blobs);
  await mkdir(join(snapshot, "onnx"), { recursive: true });
  const files = (await readdir(checkpointFolder, { recursive: true })).filter((file) => extname(file) !== "");
  for (const [index, file] of files.entries()) {
    const blob = join(blobs, `${index}`);
    await copyFile(join(checkpointFolder, file), blob);
    await symlink(relative(join(snapshot, dirname(file)), blob), join(snapshot, file));
  }
  const engine = await startExport("onnx-exports/smolvlm", folder.path, { model: snapshot });
  try {
    expect((await ask(engine, chat, cases[0]!)).tokenIds).toEqual(cases[0]!.greedyTokenIds);
  } finally {
    await engine.close();
  }
});
