import { join } from "node:path";
import { describe, expect, test } from "vitest";

import { createEngine } from "../../../engine/index.ts";
import type { EngineConfig } from "../../../engine/index.ts";
import { resolveOutput, taskOf } from "../../../engine/loading/resolve-output.ts";
import type { StoredTensor } from "../../../engine/weights/stored-tensor.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { smallEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const transformer = { idx: 0, path: "", type: "sentence_transformers.models.Transformer" };
const pooling = { idx: 1, path: "1_Pooling", type: "sentence_transformers.models.Pooling" };
const normalise = { idx: 2, path: "2_Normalize", type: "sentence_transformers.models.Normalize" };
const dense = { idx: 2, path: "2_Dense", type: "sentence_transformers.models.Dense" };
const lastToken = { word_embedding_dimension: 8, pooling_mode_mean_tokens: false, pooling_mode_lasttoken: true };

const logitScore = { idx: 1, path: "1_LogitScore", type: "sentence_transformers.cross_encoder.modules.LogitScore" };
const ids = new Map([
  ["no", 3],
  ["yes", 7],
]);

type Files = Readonly<Record<string, unknown>>;

function scoreWeight(numLabels: number): StoredTensor {
  const place = { file: "", byteOffset: 0, byteLength: 0 };
  return { name: "score.weight", elementType: "float32", shape: [numLabels, 8], ...place };
}

/** The output for files that sentence-transformers would write. */
async function check(files: Files, settings: Partial<EngineConfig> = {}) {
  const config = { ...smallEngineConfig("", ""), runner: "pooling" as const, ...settings };
  const checkpoint = {
    config: files["config.json"] ?? { architectures: ["LlamaForCausalLM"] },
    tensors: new Map([["score.weight", scoreWeight(1)]]),
    onnxFileNames: null,
    readJson: async (name: string) => files[name] ?? null,
  };
  const loadTokenizer = async () => ({ tokenId: (token: string) => ids.get(token) ?? null });
  return resolveOutput(config, { checkpoint, loadTokenizer });
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
    await expect(check(files)).resolves.toEqual({ kind: "states" });
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
    await expect(check(files, { runner: "generate" })).resolves.toEqual({ kind: "logits" });
  });
});

describe("rerankers", () => {
  const asClassifier = { architectures: ["Qwen3ForSequenceClassification"] };

  test.for<[string, Files, Partial<EngineConfig>, readonly number[] | null]>([
    ["two tokens of the settings", {}, { classifierFromToken: ["no", "yes"] }, [3, 7]],
    ["a token of the settings", {}, { classifierFromToken: ["yes"] }, [7]],
    ["tokens of config.json", { "config.json": { ...asClassifier, classifier_from_token: ["no", "yes"] } }, {}, [3, 7]],
    [
      "a module of sentence-transformers",
      {
        "modules.json": [transformer, logitScore],
        "1_LogitScore/config.json": { true_token_id: 9, false_token_id: 4, module_input_name: "causal_logits" },
      },
      {},
      [4, 9],
    ],
    [
      "a module with one token",
      {
        "modules.json": [transformer, logitScore],
        "1_LogitScore/config.json": { true_token_id: 9, false_token_id: null },
      },
      {},
      [9],
    ],
    ["a layer of their own", { "config.json": asClassifier }, {}, null],
  ])("%s give the classes", async ([, files, settings, tokenIds]) => {
    const output = await check(files, settings);
    expect(output).toEqual({ kind: "classes", tokenIds });
    expect(taskOf(output)).toBe("score");
  });

  test.for<[string, Files, Partial<EngineConfig>, string]>([
    [
      "an unknown token",
      {},
      { classifierFromToken: ["no", "Yes"] },
      'The classifier\'s token "Yes" is not in the vocabulary',
    ],
    ["tokens and text", {}, { runner: "generate", classifierFromToken: ["no"] }, "Leave out the classifier's tokens"],
    [
      "no head and text",
      { "config.json": asClassifier },
      { runner: "generate" },
      "This checkpoint has no head for text",
    ],
    [
      "three tokens in config.json",
      { "config.json": { ...asClassifier, classifier_from_token: ["a", "b", "c"] } },
      {},
      "config.json of the checkpoint does not have a classifier_from_token of one or two texts",
    ],
    ["no file of the module", { "modules.json": [logitScore] }, {}, "lacks 1_LogitScore/config.json"],
    [
      "another file of the module",
      { "modules.json": [logitScore], "1_LogitScore/config.json": { true_token_id: "yes" } },
      {},
      "1_LogitScore/config.json of the checkpoint does not have the form",
    ],
  ])("%s is rejected", async ([, files, settings, message]) => {
    await expect(check(files, settings)).rejects.toThrow(message);
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
      message: expect.stringMatching(new RegExp(`computes embeddings or scores\\. ${what}`, "i")) as unknown,
    });
    await engine.close();
  });
});
