import { expect, test } from "vitest";

import { EngineError } from "../../engine/contract/errors.ts";
import { toEngineConfig } from "../../engine/default-config.ts";
import { loadConfig } from "../../functions/settings/config.ts";

test("an engine without settings has the service's defaults", () => {
  // The service also lists optional settings.
  expect(loadConfig({}).engine).toMatchObject(toEngineConfig({}));
});

test("the options that the service gives are accepted", () => {
  const { engine } = loadConfig({
    LIMIT_MM_PER_PROMPT: '{"image": {"count": 2, "width": 64, "height": 64}, "video": 1}',
    HF_TOKEN: "token",
  });
  expect(toEngineConfig(engine)).toMatchObject({
    imageLimits: { maxImagesPerPrompt: 2, largestExpectedImage: { width: 64, height: 64 } },
    hub: { token: "token" },
  });
});

const ngram = { method: "ngram", numSpeculativeTokens: 4, promptLookupMax: 4, promptLookupMin: 2 } as const;

const expectedNames =
  'a name such as "steering:TargetToken" or { className, options }. Classes go into the second argument of createEngine: createEngine({}, { logitsProcessors: [TargetToken] })';

test.for<[Record<string, unknown>, string]>([
  [{ maxNumSeqs: 3 }, "createEngine has no option maxNumSeqs."],
  [{ imageLimits: { maxImageByte: 1 } }, 'The option imageLimits is an object; expected no field "maxImageByte".'],
  [{ videoLimits: { fps: 2 } }, 'The option videoLimits is an object; expected no field "fps".'],
  [{ documentLimits: { dpi: 2 } }, 'The option documentLimits is an object; expected no field "dpi".'],
  [{ hub: { offline: true } }, 'The option hub is an object; expected no field "offline".'],
  [{ hub: { isOffline: 1 } }, "The option hub.isOffline is 1; expected true or false."],
  [
    { hub: { endpoint: "huggingface.co" } },
    'The option hub.endpoint is "huggingface.co"; expected an http:// or https:// URL.',
  ],
  [{ gcsEmulatorUrl: "ftp://host" }, 'The option gcsEmulatorUrl is "ftp://host"; expected an http:// or https:// URL.'],
  [{ caches: { maxBytes: 1 } }, 'The option caches is an object; expected no field "maxBytes".'],
  [{ azure: { account: "a" } }, 'The option azure is an object; expected no field "account".'],
  [{ azure: { identity: { clientId: 5 } } }, "The option azure.identity.clientId is 5; expected a text."],
  [{ maxNumSequences: 0 }, "The option maxNumSequences is 0; expected at least 1."],
  [{ maxNumSequences: 2.5 }, "The option maxNumSequences is 2.5; expected an integer."],
  [{ maxNumSequences: null }, "The option maxNumSequences is null; expected a number."],
  [{ maxModelLen: -1 }, "The option maxModelLen is -1; expected at least 2."],
  [{ maxModelLen: 1 }, "The option maxModelLen is 1; expected at least 2."],
  [{ maxModelLen: "100" }, 'The option maxModelLen is "100"; expected a number.'],
  [{ model: 5 }, "The option model is 5; expected a text."],
  [
    { speculativeConfig: { ...ngram, method: "eagle" } },
    'The option speculativeConfig.method is "eagle"; expected "ngram".',
  ],
  [
    { speculativeConfig: { method: "ngram", num_speculative_tokens: 4 } },
    "The option speculativeConfig.numSpeculativeTokens is missing; expected a number.",
  ],
  [
    { speculativeConfig: { ...ngram, numSpeculativeTokens: 17 } },
    "The option speculativeConfig.numSpeculativeTokens is 17; expected at most 16.",
  ],
  [
    { speculativeConfig: { ...ngram, promptLookupMin: 5 } },
    "The option speculativeConfig.promptLookupMin is 5; expected at most promptLookupMax.",
  ],
  [{ numThreads: -3 }, "The option numThreads is -3; expected at least 1."],
  [{ gpuMemoryUtilization: 90 }, "The option gpuMemoryUtilization is 90; expected at most 1."],
  [{ device: "gpu" }, 'The option device is "gpu"; expected "cpu" or "cuda" or "webgpu".'],
  [{ warmUp: "yes" }, 'The option warmUp is "yes"; expected true or false.'],
  [
    { imageLimits: { maxImageBytes: -1 } },
    "The option imageLimits.maxImageBytes is -1; expected a number of at least 0.",
  ],
  [
    { logitsProcessors: "a:B" },
    `The option logitsProcessors is "a:B"; expected a list, each element ${expectedNames}.`,
  ],
  [{ logitsProcessors: ["a:B", undefined] }, `The option logitsProcessors[1] is missing; expected ${expectedNames}.`],
  [
    { logitsProcessors: [EngineError] },
    `The option logitsProcessors[0] is the class EngineError; expected ${expectedNames}.`,
  ],
  [{ logitsProcessors: [{}] }, "The option logitsProcessors[0].className is missing; expected a text."],
  [
    { logitsProcessors: [{ className: "a:B", options: 5 }] },
    "The option logitsProcessors[0].options is 5; expected an object.",
  ],
  [
    { logitsProcessors: [{ className: "a:B", options: { weigh() {} } }] },
    "The option logitsProcessors[0].options cannot be copied to the engine thread: weigh() {} could not be cloned; expected data without functions.",
  ],
])("rejects %j by name", ([options, message]) => {
  expect(() => toEngineConfig(options)).toThrow(
    expect.objectContaining({ name: "EngineError", code: "invalid_configuration", message }),
  );
});

test("names of logits processors may be texts, and may lack options", () => {
  const logitsProcessors = ["a:B", { className: "c:D" }, { className: "e:F", name: "f", options: { strength: 2 } }];
  expect(toEngineConfig({ logitsProcessors }).logitsProcessors).toEqual([
    { className: "a:B", options: {} },
    { className: "c:D", options: {} },
    { className: "e:F", name: "f", options: { strength: 2 } },
  ]);
});

test("null is accepted where it stands for a default, and Infinity for no limit", () => {
  const options = {
    maxModelLen: null,
    numThreads: null,
    stepTimeoutMs: Infinity,
    imageLimits: { maxDecodeCost: Infinity },
  };
  expect(toEngineConfig(options)).toMatchObject(options);
});

test("given settings replace the defaults, image limits one by one; undefined settings do not", () => {
  const imageLimits = { maxImagesPerPrompt: 1, fetchTimeoutMs: undefined };
  const config = toEngineConfig({ model: "/models/llava", maxModelLen: 512, maxNumSequences: undefined, imageLimits });
  expect(config).toMatchObject({ model: "/models/llava", maxModelLen: 512, maxNumSequences: 32 });
  expect(config.imageLimits).toMatchObject({ maxImagesPerPrompt: 1, fetchTimeoutMs: 10_000 });
});

test("image caches, and accounts of Azure, are given field by field", () => {
  const config = toEngineConfig({
    caches: { maxMemoryBytes: 7 },
    azure: { accountName: "a", identity: { clientId: "b" } },
  });
  expect(config.caches).toEqual({ ...toEngineConfig({}).caches, maxMemoryBytes: 7 });
  expect(toEngineConfig({ caches: {} }).caches).toMatchObject({ maxMemoryBytes: 256 * 2 ** 20 });
  expect(config.azure).toMatchObject({ accountName: "a", accountKey: null, connectionString: null });
  expect(config.azure?.identity).toMatchObject({
    clientId: "b",
    tenantId: null,
    metadataUrl: "http://169.254.169.254",
  });
});

test("a step on cuda may have twice the tokens", () => {
  expect(toEngineConfig({}).maxNumBatchedTokens).toBe(512);
  expect(toEngineConfig({ device: "cuda" }).maxNumBatchedTokens).toBe(1024);
  expect(toEngineConfig({ device: "cuda", maxNumBatchedTokens: 64 }).maxNumBatchedTokens).toBe(64);
});

test("without images there are no videos either, unless they are asked for", () => {
  const imageLimits = { maxImagesPerPrompt: 0 };
  expect(toEngineConfig({ imageLimits }).videoLimits?.maxVideosPerPrompt).toBe(0);
  const videoLimits = { maxVideosPerPrompt: 2 };
  expect(toEngineConfig({ imageLimits, videoLimits }).videoLimits?.maxVideosPerPrompt).toBe(2);
});
