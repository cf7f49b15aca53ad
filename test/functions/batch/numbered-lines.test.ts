import * as fc from "fast-check";
import { expect, test, vi } from "vitest";

import { readLines } from "../../../functions/batch/numbered-lines.ts";
import type { NumberedLine } from "../../../functions/batch/numbered-lines.ts";

async function* chunksOf(bytes: Uint8Array, chunkLength: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.byteLength; start += chunkLength) {
    yield bytes.subarray(start, start + chunkLength);
  }
}

async function read(content: string | Uint8Array, { chunkLength = 5, maxLineBytes = 1000 } = {}) {
  const lines: NumberedLine[] = [];
  for await (const line of readLines(chunksOf(Buffer.from(content), chunkLength), maxLineBytes)) lines.push(line);
  return lines;
}

test("lines do not depend on the chunks, even if a character is cut in two", async () => {
  const text = fc.array(fc.string({ unit: "grapheme" }).map((part) => part.replaceAll("\n", " "))).map((parts) => {
    return parts.join("\n");
  });
  await fc.assert(
    fc.asyncProperty(text, fc.integer({ min: 1, max: 9 }), async (content, chunkLength) => {
      const expected = content
        .replace(/^\uFEFF/, "")
        .split("\n")
        .map((line, index) => ({ lineNumber: index + 1, text: line, problem: null }))
        .filter(({ text: line }) => line.trim() !== "");
      expect(await read(content, { chunkLength })).toEqual(expected);
    }),
  );
});

test("empty lines are counted, and the last line needs no line end", async () => {
  const lines = await read("\uFEFFa\r\n\n \nb");
  expect(lines.map(({ lineNumber, text }) => [lineNumber, text.trim()])).toEqual([
    [1, "a"],
    [4, "b"],
  ]);
  expect(await read("")).toEqual([]);
});

test("a line that is too long or not UTF-8 is skipped and reported", async () => {
  const content = Buffer.concat([
    Buffer.from(`${"x".repeat(11)}\n`),
    Buffer.from([0xff, 10]),
    Buffer.from(`${"y".repeat(10)}\n`),
  ]);
  expect(await read(content, { maxLineBytes: 10 })).toEqual([
    {
      lineNumber: 1,
      text: "",
      problem: {
        code: "line_too_long",
        message: "it has 11 bytes; the limit is 10, which MAX_BODY_BYTES sets.",
      },
    },
    { lineNumber: 2, text: "", problem: { code: "invalid_json", message: "it is not UTF-8." } },
    { lineNumber: 3, text: "y".repeat(10), problem: null },
  ]);
});

test("empty lines are skipped without being decoded, so that a file of them costs little", async () => {
  const decode = vi.spyOn(TextDecoder.prototype, "decode");
  const blank = " \t\v\f\r\n\n".repeat(1000);
  const lines = await read(`a\n${blank}b\n${blank}`, { chunkLength: 4096 });
  expect(lines.map(({ lineNumber, text }) => [lineNumber, text])).toEqual([
    [1, "a"],
    [2002, "b"],
  ]);
  // The lines, and those that two chunks share.
  expect(decode.mock.calls.length).toBeLessThan(10);
  decode.mockRestore();
});
