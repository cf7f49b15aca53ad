/** Recorded answers over both layouts of the KV cache, on every device. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { testDevices } from "../support/devices/test-devices.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { collectReport, failuresOf } from "./collect-report.ts";
import { goldenDtypes } from "./experiments/whole-decoder.ts";
import { checkGoldens } from "./goldens.ts";

describe.for(testDevices)("on %s", (device) => {
  let folder: TemporaryFolder;

  beforeAll(async () => {
    folder = await createTemporaryFolder();
  });

  afterAll(() => folder[Symbol.asyncDispose]());

  const cases = goldenDtypes({ device, dtype: null }).flatMap((dtype) =>
    (["slots", "paged"] as const).flatMap((layout) =>
      (["llama", "qwen2", "llava-default"] as const).map((name) => [name, dtype, layout] as const),
    ),
  );

  test.for(cases)("%s answers in %s over %s as it was recorded", async ([name, dtype, layout]) => {
    const report = collectReport(folder.path);
    const blockSize = device === "cpu" ? 8 : 256;
    const kvLayout = layout === "slots" ? ({ kind: "slots" } as const) : ({ kind: "paged", blockSize } as const);
    await checkGoldens({ device, folder: folder.path, report }, name, dtype, kvLayout);
    expect(report.checks.length).toBeGreaterThan(2);
    expect(failuresOf(report)).toEqual([]);
  });
});
