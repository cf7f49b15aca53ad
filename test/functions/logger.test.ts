import { Writable } from "node:stream";
import { expect, test } from "vitest";

import { createLogger, writeTo } from "../../functions/logger.ts";

test("lines are dropped while the reader of the log stands still, and counted when it goes on", async () => {
  const read: string[] = [];
  const pending: (() => void)[] = [];
  let isStill = true;
  const stream = new Writable({
    decodeStrings: false,
    write(line: string, _encoding, done) {
      read.push(line);
      if (isStill) pending.push(done);
      else done();
    },
  });
  const logger = createLogger({ level: "info", write: writeTo(stream, 1000) });
  const fields = { text: "x".repeat(200) };
  for (let index = 0; index < 100; index++) logger.info(`line ${index}`, fields);
  expect(stream.writableLength).toBeLessThan(1300);
  isStill = false;
  for (const done of pending) done();
  await expect.poll(() => stream.writableLength).toBe(0);
  logger.info("last");
  stream.end();
  const lines = read.map((line) => JSON.parse(line) as Record<string, unknown>);
  const numWritten = lines.filter(({ message }) => String(message).startsWith("line")).length;
  expect(numWritten).toBeLessThan(6);
  expect(lines.slice(numWritten)).toEqual([
    expect.objectContaining({ level: "warn", numDropped: 100 - numWritten }),
    expect.objectContaining({ message: "last" }),
  ]);
});
