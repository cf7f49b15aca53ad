import { expect, test } from "vitest";

import { AnswerReader } from "./answer-reader.ts";

const get = { method: "GET", target: "/a" };
const head = { method: "HEAD", target: "/a" };
const withLength = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
const inChunks = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n\r\n";
const informational = "HTTP/1.1 100 Continue\r\n\r\n";
const untilTheEnd = "HTTP/1.1 200 OK\r\n\r\nabc";

/** The bytes arrive one at a time. */
function read(text: string, asked: readonly { method: string; target: string }[], isEnd = false): [number, string][] {
  const reader = new AnswerReader(asked);
  for (const byte of Buffer.from(text, "latin1")) reader.add(Uint8Array.of(byte));
  if (isEnd) reader.end();
  return reader.answers.map(({ status, text: body }) => [status, body]);
}

test.for<[string, string, [number, string][]]>([
  ["a length", withLength, [[200, "ab"]]],
  ["chunks", inChunks, [[404, "abc"]]],
  ["an answer after an informational one", informational + withLength, [[200, "ab"]]],
  [
    "several answers",
    withLength + inChunks + withLength,
    [
      [200, "ab"],
      [404, "abc"],
      [200, "ab"],
    ],
  ],
  ["an answer that is not whole", inChunks.slice(0, -3), []],
])("reads %s", ([, text, expected]) => {
  expect(read(text, [get, get, get])).toEqual(expected);
});

test("an answer to HEAD has no body, whatever its length header says", () => {
  expect(read("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + withLength, [head, get])).toEqual([
    [200, ""],
    [200, "ab"],
  ]);
});

test("an answer without a length ends with the connection", () => {
  expect(read(untilTheEnd, [get])).toEqual([]);
  expect(read(untilTheEnd, [get], true)).toEqual([[200, "abc"]]);
});

test.for([withLength.slice(0, -1), "a", inChunks.slice(0, -3)])("throws when a connection ends within %j", (text) => {
  expect(() => read(text, [get], true)).toThrow("no whole answer");
});
