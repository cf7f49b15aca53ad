import { expect, test } from "vitest";

import { toEngineConfig } from "../../engine/default-config.ts";
import { defaultCacheConfig } from "../../engine/multimodal/caches/multimodal-caches.ts";
import { loadConfig } from "../../functions/settings/config.ts";

test("an engine without settings is configured as the service without settings", () => {
  expect({ ...toEngineConfig({}), caches: defaultCacheConfig }).toEqual(loadConfig({}).engine);
});

test("given settings replace the defaults, image limits one by one", () => {
  const config = toEngineConfig({ model: "/models/llava", maxModelLen: 512, imageLimits: { maxImagesPerPrompt: 1 } });
  expect(config).toMatchObject({ model: "/models/llava", maxModelLen: 512, maxNumSequences: 32 });
  expect(config.imageLimits).toMatchObject({ maxImagesPerPrompt: 1, fetchTimeoutMs: 10_000 });
});
