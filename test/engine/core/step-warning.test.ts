import { expect, test } from "vitest";

import { warnOfLargeSteps } from "../../../engine/core/step-warning.ts";
import { collectWarnings } from "../../support/collected-warnings.ts";

test("steps of more than 1,024 tokens are warned of on cuda alone", async () => {
  const warnings = collectWarnings();
  warnOfLargeSteps({ device: "cpu", maxNumBatchedTokens: 4096 });
  warnOfLargeSteps({ device: "cuda", maxNumBatchedTokens: 1024 });
  warnOfLargeSteps({ device: "cuda", maxNumBatchedTokens: 1025 });
  await expect.poll(() => warnings.length).toBeGreaterThan(0);
  expect(warnings).toEqual([expect.stringMatching(/^A step may have 1025 tokens\. .* issue 2583\), .* 1024 or less/)]);
});
