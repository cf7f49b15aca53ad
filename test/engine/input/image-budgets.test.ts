import { expect, test } from "vitest";

import { imageBudgets } from "../../../engine/input/image-budgets.ts";

const MEBIBYTE = 2 ** 20;

test.for([512, 1024, 2048])("pictures leave half of %i MiB to the model and the program", (mebibytes) => {
  const { maxFetchedBytes, maxProcessedBytes } = imageBudgets(mebibytes * MEBIBYTE);
  expect(maxFetchedBytes + maxProcessedBytes).toBe((mebibytes / 2) * MEBIBYTE);
});

test("pictures being fetched take no more than a gibibyte of a large machine", () => {
  expect(imageBudgets(64 * 1024 * MEBIBYTE)).toMatchObject({
    maxFetchedBytes: 1024 * MEBIBYTE,
    maxProcessedBytes: 16 * 1024 * MEBIBYTE,
  });
});

test("decoded frames take a sixteenth of the memory, from ten of 1080p to twenty of 4K", () => {
  const decodedMebibytes = (mebibytes: number): number => imageBudgets(mebibytes * MEBIBYTE).maxDecodedBytes / MEBIBYTE;
  expect([512, 1024, 4096, 8192, 65_536].map(decodedMebibytes)).toEqual([64, 64, 256, 512, 512]);
});
