import { join } from "node:path";
import { describe, expect, test } from "vitest";

import { createEngine } from "../../../engine/index.ts";
import type { EngineConfig } from "../../../engine/index.ts";
import { requirePooling } from "../../../engine/loading/require-pooling.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { smallEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const transformer = { idx: 0, path: "", type: "sentence_transformers.models.Transformer" };
const pooling = { idx: 1, path: "1_Pooling", type: "sentence_transformers.models.Pooling" };
const normalise = { idx: 2, path: "2_Normalize", type: "sentence_transformers.models.Normalize" };
const dense = { idx: 2, path: "2_Dense", type: "sentence_transformers.models.Dense" };
const lastToken = { word_embedding_dimension: 8, pooling_mode_mean_tokens: false, pooling_mode_lasttoken: true };

/** The check over files that sentence-transformers would write. */
async function check(files: Readonly<Record<string, unknown>>, runner: EngineConfig["runner"] = "pooling") {
  const config = { ...smallEngineConfig("", ""), runner };
  await requirePooling(config, { onnxFileNames: null, readJson: async (name) => files[name] ?? null });
}

describe("files of sentence-transformers", () => {
  test.for<[string, Record<string, unknown>]>([
    ["none", {}],
    ["a last token", { "modules.json": [transformer, pooling, normalise], "1_Pooling/config.json": lastToken }],
    [
      "the newer form",
      { "modules.json": [transformer, pooling], "1_Pooling/config.json": { pooling_mode: "lasttoken" } },
    ],
  ])("%s are served", async ([, files]) => {
    await expect(check(files)).resolves.toBeUndefined();
  });

  test.for<[string, Record<string, unknown>, string]>([
    [
      "the mean of all tokens",
      { "modules.json": [pooling], "1_Pooling/config.json": { pooling_mode_mean_tokens: true } },
      "1_Pooling/config.json says that tokens are pooled by mean_tokens; only lasttoken is computed",
    ],
    [
      "two modes",
      { "modules.json": [pooling], "1_Pooling/config.json": { ...lastToken, pooling_mode_cls_token: true } },
      "pooled by lasttoken, cls_token;",
    ],
    ["another layer", { "modules.json": [transformer, dense] }, "modules.json has a module Dense"],
    ["no pooling file", { "modules.json": [pooling] }, "lacks 1_Pooling/config.json"],
    ["another form", { "modules.json": { a: 1 } }, "modules.json of the checkpoint does not have the form"],
  ])("%s is rejected", async ([, files, message]) => {
    await expect(check(files)).rejects.toThrow(message);
    // An engine that generates text does not pool.
    await expect(check(files, "generate")).resolves.toBeUndefined();
  });
});

describe("settings that need text", () => {
  const whitespaceBias = new URL("../../support/engine/whitespace-bias.ts", import.meta.url).href;
  test.for<[string, string, Partial<EngineConfig>]>([
    ["an ONNX export", "onnx-exports/llama", {}],
    [
      "Logits processors",
      "llama",
      { logitsProcessors: [{ className: `${whitespaceBias}:WhitespaceBias`, options: {} }] },
    ],
    [
      "Drafts",
      "llama",
      { speculativeConfig: { method: "ngram", numSpeculativeTokens: 2, promptLookupMax: 2, promptLookupMin: 1 } },
    ],
  ])("%s end the start", async ([what, name, overrides]) => {
    await using cache = await createTemporaryFolder();
    const config = smallEngineConfig(join(goldensFolder, name), cache.path);
    const engine = createEngine({ ...config, runner: "pooling", ...overrides }, { imageSources: [] });
    await expect(engine.ready).rejects.toMatchObject({
      code: "invalid_configuration",
      setting: "runner",
      message: expect.stringMatching(new RegExp(`computes embeddings\\. ${what}`, "i")) as unknown,
    });
    await engine.close();
  });
});
