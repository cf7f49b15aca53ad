import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { toEngineConfig } from "../../../../engine/default-config.ts";
import { createEngine } from "../../../../engine/index.ts";
import { inspectCheckpoint } from "../../../../engine/inspection/inspect-checkpoint.ts";
import { gemma3Definition } from "../../../../engine/models/gemma3/definition.ts";
import { createGraphContext } from "../../../../engine/models/graph-context.ts";
import { imaginedWeights } from "../../../../engine/models/weight-source.ts";
import { writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import { resolveKvLayout, resolveKvPrecision } from "../../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

test.for([
  [
    { maxNumBatchedTokens: 21 },
    "This model computes the 16 tokens of an image in one step, so that 7 sequences need steps of 22 tokens or more; the limit is 21.",
  ],
  [{ mmProcessorOptions: { do_pan_and_scan: true } }, "do_pan_and_scan is true; crops of a picture are not supported"],
] as const)("%o is rejected at the start and by check", async ([options, message]) => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint("gemma3", "v4", folder.path);
  const settings = { model: folder.path, cacheFolder: cache.path, maxModelLen: 128, maxNumSequences: 7, numThreads: 1 };
  const rejection = { code: "invalid_configuration", message: expect.stringContaining(message) as unknown };
  const config = toEngineConfig({ ...settings, ...options });
  await expect(inspectCheckpoint(config, {}, new AbortController().signal)).rejects.toMatchObject(rejection);
  const engine = createEngine(config);
  try {
    await expect(engine.ready).rejects.toMatchObject(rejection);
  } finally {
    await engine.close();
  }
});

const plain = (elementType: "float16" | "bfloat16") => {
  const format = { kind: "plain", elementType } as const;
  return { activations: elementType, linear: format, head: format, vision: format };
};

test("neither blocks on cuda nor 8-bit keys and values are chosen by themselves", async () => {
  const file = new URL("../../../fixtures/hub/gemma3/v4/config.json", import.meta.url);
  const checkpoint = { config: JSON.parse(await readFile(file, "utf8")) as unknown, onnxFileNames: null };
  expect(resolveKvLayout({ device: "cuda" }, checkpoint)).toEqual({ kind: "slots" });
  const settings = { device: "cpu", dtype: "int8" } as const;
  expect(resolveKvPrecision(settings, { kind: "slots" }, checkpoint)).toEqual({ kind: "activations" });
});

test.for([
  ["float16", "slots", "exceed the range of float16; choose the dtype float32, or bfloat16 on cuda"],
  ["bfloat16", "paged", "which paged attention on cuda cannot compute. Choose the KV layout"],
] as const)("%s over %s on cuda is rejected", async ([elementType, kind, message]) => {
  const file = new URL("../../../fixtures/hub/gemma3/v4/config.json", import.meta.url);
  const model = gemma3Definition.configure(JSON.parse(await readFile(file, "utf8")));
  const kvLayout = kind === "slots" ? { kind } : { kind, blockSize: 64 };
  const context = createGraphContext("decoder", {
    weights: imaginedWeights,
    precision: plain(elementType),
    device: "cuda",
    kvLayout,
  });
  expect(() => model.buildDecoder(context, 128)).toThrow(message);
});
