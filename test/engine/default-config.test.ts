import { expect, test } from "vitest";

import { toEngineConfig } from "../../engine/default-config.ts";
import { loadConfig } from "../../functions/settings/config.ts";

test("an engine without settings has the service's defaults", () => {
  // The service also lists optional settings.
  expect(loadConfig({}).engine).toMatchObject(toEngineConfig({}));
});

test("given settings replace the defaults, image limits one by one; undefined settings do not", () => {
  const imageLimits = { maxImagesPerPrompt: 1, fetchTimeoutMs: undefined };
  const config = toEngineConfig({ model: "/models/llava", maxModelLen: 512, maxNumSequences: undefined, imageLimits });
  expect(config).toMatchObject({ model: "/models/llava", maxModelLen: 512, maxNumSequences: 32 });
  expect(config.imageLimits).toMatchObject({ maxImagesPerPrompt: 1, fetchTimeoutMs: 10_000 });
});
