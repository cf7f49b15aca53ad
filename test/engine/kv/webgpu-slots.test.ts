import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";

import { softwareGpuEnvironment } from "../../support/programs/chromium.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { AnswerReport, WebGpuSlotsReport } from "./webgpu-slots.ts";

/** A software GPU compiles and runs every kernel on the processors, for most of a minute where nothing else runs. */
const TIMEOUT_MS = 300_000;

const script = fileURLToPath(new URL("webgpu-slots.ts", import.meta.url));

describe("five slots on webgpu", () => {
  let report: WebGpuSlotsReport;

  beforeAll(async () => {
    await using folder = await createTemporaryFolder();
    const { stdout } = await promisify(execFile)(process.execPath, [script, folder.path], {
      env: await softwareGpuEnvironment(),
    });
    report = JSON.parse(stdout) as WebGpuSlotsReport;
  }, TIMEOUT_MS);

  const expectSameTokens = (answers: readonly AnswerReport[]): void => {
    for (const { requestId, tokenIds, expected } of answers) expect(tokenIds, requestId).toEqual(expected);
  };

  test("recorded prompts get the reference's tokens, and reuse what their slots have kept when asked again", () => {
    expectSameTokens(report.recorded);
    const half = report.recorded.length / 2;
    for (const { numCachedTokens } of report.recorded.slice(0, half)) expect(numCachedTokens).toBe(0);
    for (const { numCachedTokens, numPromptTokens } of report.recorded.slice(half)) {
      expect(numCachedTokens).toBe(numPromptTokens - 1);
    }
  });

  test("prompts that come and go while others decode get the CPU's tokens", () => {
    expectSameTokens(report.mixed);
    expect(new Set(report.mixed.map(({ tokenIds }) => tokenIds.join())).size).toBeGreaterThan(4);
  });

  test("equal prompts that come together are computed once and copied on the device", () => {
    expectSameTokens(report.equal);
    const [first, ...others] = report.equal;
    expect(first!.numCachedTokens).toBe(0);
    for (const { numCachedTokens } of others) expect(numCachedTokens).toBe(first!.numPromptTokens - 1);
  });

  test("an adapter that would compute longer prompts wrongly refuses them at the start", () => {
    expect(report.refusal).toContain("at most 31 tokens in a step (32 are set)");
  });

  test("the next turn continues in its slot, and a branch takes a copy of what it shares", () => {
    expectSameTokens(report.turns);
    const [turn, branch] = report.turns;
    // The answer's last token was sampled, but nothing was computed after it.
    expect(turn!.numCachedTokens).toBe(turn!.numPromptTokens - 4);
    expect(branch!.numCachedTokens).toBe(20);
  });
});
