import { expect, test } from "vitest";

import { toEngineConfig } from "../../engine/default-config.ts";
import { defaultDecodeLimits } from "../../engine/images/image-processor.ts";
import { defaultCacheConfig } from "../../engine/multimodal/caches/multimodal-caches.ts";
import { loadConfig } from "../../functions/settings/config.ts";

test("an engine without settings is configured as the service without settings", () => {
  const { imageLimits, ...config } = toEngineConfig({});
  // What these leave open is filled in where it is used.
  const filled = { ...config, caches: defaultCacheConfig, imageLimits: { ...imageLimits, ...defaultDecodeLimits } };
  expect(filled).toEqual(loadConfig({}).engine);
});

test("given settings replace the defaults, image limits one by one", () => {
  const config = toEngineConfig({ model: "/models/llava", maxModelLen: 512, imageLimits: { maxImagesPerPrompt: 1 } });
  expect(config).toMatchObject({ model: "/models/llava", maxModelLen: 512, maxNumSequences: 32 });
  expect(config.imageLimits).toMatchObject({ maxImagesPerPrompt: 1, fetchTimeoutMs: 10_000 });
});
