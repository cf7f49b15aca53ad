/** Recorded answers of every decoder family over both layouts of the KV cache, on every device. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { testDevices } from "../support/devices/test-devices.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { collectReport, failuresOf } from "./collect-report.ts";
import { goldenDtypes } from "./experiments/whole-decoder.ts";
import { checkGoldens, checkScarceGoldens, largestGap } from "./goldens.ts";
import { compareLogprobs } from "./near-ties.ts";
import { isServed, recordedNames, toleranceOf } from "./recorded-models.ts";

describe.for(testDevices)("on %s", (device) => {
  let folder: TemporaryFolder;

  beforeAll(async () => {
    folder = await createTemporaryFolder();
  });

  afterAll(() => folder[Symbol.asyncDispose]());

  const cases = goldenDtypes({ device, dtype: null }).flatMap((dtype) =>
    (["slots", "paged"] as const).flatMap((layout) =>
      recordedNames
        .filter((name) => isServed(name, device, dtype, layout))
        .map((name) => [name, dtype, layout] as const),
    ),
  );

  test.for(cases)("%s answers in %s over %s as it was recorded", async ([name, dtype, layout]) => {
    const report = collectReport(folder.path);
    await checkGoldens({ device, folder: folder.path, report }, name, dtype, layout);
    expect(report.checks.length).toBeGreaterThan(1);
    expect(failuresOf(report)).toEqual([]);
  });

  const paged = cases.flatMap(([name, dtype, layout]) => (layout === "paged" ? [[name, dtype] as const] : []));

  test.for(paged)("%s in %s gives the same answers where sequences are preempted", async ([name, dtype]) => {
    const report = collectReport(folder.path);
    await checkScarceGoldens({ device, folder: folder.path, report }, name, dtype);
    expect(report.checks.length).toBeGreaterThan(12);
    expect(failuresOf(report)).toEqual([]);
  });
});

test.for(["hub/llama-3", "hub/gemma3-text", "hub/persimmon"])(
  "another rotary base in %s is beyond every tolerance",
  async (name) => {
    await using folder = await createTemporaryFolder();
    expect(await largestGap(folder.path, name, (config) => config)).toBeLessThan(toleranceOf(name, "float32"));
    const change = (config: string): string => config.replaceAll(/"rope_theta": [\d.]+/g, '"rope_theta": 50.0');
    expect(await largestGap(folder.path, name, change)).toBeGreaterThan(toleranceOf(name, "bfloat16"));
  },
);

test("another token, or another logprob, is a gap of its size", () => {
  const recorded = { greedyTokenIds: [7, 8], logprobs: [-0.5, -1] };
  const row = (tokenId: number, logprob: number, ...others: readonly (readonly [number, number])[]) => ({
    sampled: { tokenId, logprob, rank: 1 },
    top: others.map(([id, value], index) => ({ tokenId: id, logprob: value, rank: index + 1 })),
  });
  const first = row(7, -0.5, [7, -0.5]);
  expect(compareLogprobs([7, 8], [first, row(8, -1.25)], recorded)).toEqual({ isEqual: true, numEqual: 2, gap: 0.25 });
  const near = row(9, -0.9, [9, -0.9], [8, -1]);
  expect(compareLogprobs([7, 9], [first, near], recorded)).toMatchObject({ isEqual: false, numEqual: 1 });
  expect(compareLogprobs([7, 9], [first, near], recorded).gap).toBeCloseTo(0.1);
  expect(compareLogprobs([7, 9], [first, row(9, -0.9)], recorded).gap).toBe(Infinity);
  expect(compareLogprobs([7], [first], recorded).gap).toBe(Infinity);
});
