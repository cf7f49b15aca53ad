import { readFileSync } from "node:fs";
import { platform, release } from "node:os";
import { expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../../engine/index.ts";
import { collectGarbage } from "../../../engine/runtime/collect-garbage.ts";
import { HugePages } from "../../../engine/runtime/huge-pages.ts";
import { addressOf } from "../../../engine/runtime/ort-api.ts";

const mebibyte = 2 ** 20;

/** Bytes of 2 MiB pages in the ranges that the array touches. */
function hugeBytesOf(array: Uint8Array): number {
  const start = addressOf(array);
  const end = start + BigInt(array.byteLength);
  let isInside = false;
  let numBytes = 0;
  for (const line of readFileSync("/proc/self/smaps", "latin1").split("\n")) {
    const range = /^(?<low>[0-9a-f]+)-(?<high>[0-9a-f]+) /.exec(line)?.groups;
    if (range !== undefined) isInside = BigInt(`0x${range.low}`) < end && BigInt(`0x${range.high}`) > start;
    const size = /^AnonHugePages: +(?<kibibytes>\d+)/.exec(line)?.groups;
    if (isInside && size !== undefined) numBytes += Number(size.kibibytes) * 1024;
  }
  return numBytes;
}

function hugeBytesOfProcess(): number {
  const rollup = readFileSync("/proc/self/smaps_rollup", "latin1");
  return Number(/^AnonHugePages: +(\d+)/m.exec(rollup)?.[1] ?? 0) * 1024;
}

/** Linux 6.1 brought the call. */
const [major = 0, minor = 0] = release().split(".").map(Number);
const isSupported = platform() === "linux" && (major > 6 || (major === 6 && minor >= 1));

test.runIf(isSupported)("memory in use is moved and keeps its contents, empty memory stays as it is", () => {
  const before = HugePages.inUse();
  const used = new Uint8Array(16 * mebibyte).fill(7);
  const empty = new Uint8Array(16 * mebibyte);
  expect(hugeBytesOf(used)).toBe(0);
  const pages = HugePages.inUse(before);
  expect(pages.numBlocks).toBeGreaterThanOrEqual(7);
  const residentBytes = process.memoryUsage.rss();
  while (pages.moveNext());
  expect(process.memoryUsage.rss() - residentBytes).toBeLessThan(4 * mebibyte);
  // Its ends may share a page with other memory.
  expect(hugeBytesOf(used)).toBeGreaterThanOrEqual(14 * mebibyte);
  expect(used.every((byte) => byte === 7)).toBe(true);
  expect(empty.every((byte) => byte === 0)).toBe(true);
});

test.runIf(isSupported)("steps leave a fiftieth of their time for moving", () => {
  const used = new Uint8Array(16 * mebibyte).fill(7);
  const pages = HugePages.inUse();
  const { numBlocks } = pages;
  expect(numBlocks).toBeGreaterThan(3);
  pages.moveBetweenSteps(0);
  expect(pages.numBlocks).toBe(numBlocks - 1);
  for (let step = 0; step < 10; step++) pages.moveBetweenSteps(0);
  expect(pages.numBlocks).toBe(numBlocks - 1);
  pages.moveBetweenSteps(100_000);
  pages.moveBetweenSteps(0);
  expect(pages.numBlocks).toBe(numBlocks - 3);
  expect(used.every((byte) => byte === 7)).toBe(true);
});

test.runIf(isSupported)("an engine without work moves what loading has filled, and answers as before", async () => {
  // Pages of the arrays above would be given back meanwhile.
  await collectGarbage();
  const before = hugeBytesOfProcess();
  const engine = createEngine({});
  await engine.ready;
  await expect.poll(hugeBytesOfProcess).toBeGreaterThan(before);
  const prompt = { kind: "text", text: "a", addSpecialTokens: true } as const;
  const samplingParams = createSamplingParams({ maxTokens: 3, ignoreEos: true });
  let numTokens = 0;
  for await (const { tokenIds } of engine.generate({ requestId: "a", prompt, samplingParams }))
    numTokens += tokenIds.length;
  expect(numTokens).toBe(3);
  await engine.close();
});

test("memory that was in use earlier is left out", () => {
  const used = new Uint8Array(16 * mebibyte).fill(7);
  const before = HugePages.inUse();
  const { numBlocks } = HugePages.inUse(before);
  expect(numBlocks).toBeLessThan(4);
  expect(used.every((byte) => byte === 7)).toBe(true);
});
