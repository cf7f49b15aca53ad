import { appendFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { openResultFile } from "../../../functions/batch/result-file.ts";
import { errorLine, responseLine } from "../../../functions/batch/result-line.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let folder: TemporaryFolder;
let numFiles = 0;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

function newPath(): string {
  return join(folder.path, `results-${numFiles++}.jsonl`);
}

function response(customId: string, text = "") {
  return responseLine(customId, { statusCode: 200, requestId: "request", body: { text } });
}

const duplicate = errorLine({
  lineNumber: 3,
  customId: "a",
  code: "duplicate_custom_id",
  message: "Line 3: …",
  parameter: "custom_id",
});

test("appended results are known to the next run, errors of lines by their numbers", async () => {
  const path = newPath();
  const file = await openResultFile(path);
  expect(file.done).toEqual({ customIds: new Set(), numSucceeded: 0, badLines: new Set() });
  // Longer than the part of the file that is read at once.
  const long = response("b", "é".repeat(1024 ** 2));
  await Promise.all([file.append(duplicate), file.append(long), file.append(response("c"))]);
  await file.close();
  const again = await openResultFile(path);
  expect(again.done).toEqual({ customIds: new Set(["b", "c"]), numSucceeded: 2, badLines: new Set([3]) });
  await again.close();
  const lines = (await readFile(path, "utf8")).trimEnd().split("\n");
  expect(lines.map((line) => JSON.parse(line) as object)).toEqual([duplicate, long, response("c")].map(withAnyId));
});

function withAnyId(line: object): object {
  return { ...line, id: expect.stringMatching(/^batch_req_[0-9a-f]{32}$/) };
}

test("no character of a line but its end ends a line in other languages", async () => {
  const path = newPath();
  // Those of Python's str.splitlines().
  const ends = ["\n", "\r", "\v", "\f", "\u001c", "\u001d", "\u001e", "\u0085", "\u2028", "\u2029"];
  const text = `a${ends.join("")}b`;
  const file = await openResultFile(path);
  await file.append(response(text, text));
  await file.close();
  const written = await readFile(path, "utf8");
  expect(ends.filter((end) => written.slice(0, -1).includes(end))).toEqual([]);
  expect(JSON.parse(written)).toEqual(withAnyId(response(text, text)));
  const again = await openResultFile(path);
  expect(again.done.customIds).toEqual(new Set([text]));
  await again.close();
});

test.for([1, 9, 30, 200])("cuts off a line of which only %i bytes were written", async (numBytes) => {
  const path = newPath();
  const whole = `${JSON.stringify(response("a"))}\n`;
  await writeFile(path, whole + JSON.stringify(response("b", "x".repeat(300))).slice(0, numBytes));
  const file = await openResultFile(path);
  expect(file.done.customIds).toEqual(new Set(["a"]));
  await file.close();
  expect(await readFile(path, "utf8")).toBe(whole);
});

test("a last line that lacks only its line end gets it", async () => {
  const path = newPath();
  await writeFile(path, JSON.stringify(response("a")));
  const file = await openResultFile(path);
  expect(file.done.customIds).toEqual(new Set(["a"]));
  await file.append(response("b"));
  await file.close();
  expect((await readFile(path, "utf8")).match(/\n/g)).toHaveLength(2);
});

test.for([
  ["a line of another file", '{"custom_id": "a", "method": "POST"}\n', "line 2 is not a result"],
  ["text", "something\n", "line 2 is not a result"],
  ["text at the end", "something", "its last line is not a result"],
])("a file that contains %s is left unchanged", async ([, more, problem]) => {
  const path = newPath();
  const whole = `${JSON.stringify(response("a"))}\n`;
  await writeFile(path, whole);
  await appendFile(path, more!);
  await expect(openResultFile(path)).rejects.toThrow(
    `--output ${path} contains something other than results: ${problem}.`,
  );
  expect(await readFile(path, "utf8")).toBe(whole + more);
});

test("a missing folder, and a path that is not a file, are rejected", async () => {
  await expect(openResultFile("/nowhere/at/all")).rejects.toThrow("--output /nowhere/at/all cannot be written: ENOENT");
  await expect(openResultFile("/dev/null")).rejects.toThrow("--output /dev/null is not a file; - is standard output.");
});
