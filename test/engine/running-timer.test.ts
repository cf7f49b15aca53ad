import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";

import { RunningTimer } from "../../engine/running-timer.ts";
import { pauseProcess } from "../support/pause-process.ts";

test.for([0, 1, 20, 59.5])("a timer of %d ms elapses", async (timeoutMs) => {
  const elapsed = Promise.withResolvers<void>();
  const start = performance.now();
  const timer = new RunningTimer(timeoutMs, elapsed.resolve);
  await elapsed.promise;
  expect(performance.now() - start).toBeGreaterThanOrEqual(timeoutMs);
  expect(timer.elapsedMs).toBeGreaterThanOrEqual(timeoutMs);
});

test("a pause counts as a quarter of the time limit", () => {
  const timer = new RunningTimer(80, () => {});
  pauseProcess(400);
  expect(timer.elapsedMs).toBe(20);
  timer[Symbol.dispose]();
});

test.for([Number.POSITIVE_INFINITY, 2 ** 31])("a timer of %d ms does not elapse at once", async (timeoutMs) => {
  let hasElapsed = false;
  using _ = new RunningTimer(timeoutMs, () => (hasElapsed = true));
  for (let count = 0; count < 10; count++) await turn();
  expect(hasElapsed).toBe(false);
});

test("a timer that was disposed of does not elapse, even if its time was over", async () => {
  let hasElapsed = false;
  const timer = new RunningTimer(1, () => (hasElapsed = true));
  const later = Promise.withResolvers<void>();
  setTimeout(later.resolve, 50);
  timer[Symbol.dispose]();
  await later.promise;
  expect(hasElapsed).toBe(false);
});

test("data that arrived during a pause is received before the timer elapses", async () => {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "connection");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [socket] = (await accepted) as [Socket];
  const events: string[] = [];
  socket.once("data", () => events.push("data"));
  const elapsed = Promise.withResolvers<void>();
  using _ = new RunningTimer(1, () => {
    events.push("elapsed");
    elapsed.resolve();
  });
  // From here on, timers run before sockets are read.
  await turn();
  client.write("x");
  pauseProcess(100);
  await elapsed.promise;
  expect(events).toEqual(["data", "elapsed"]);
  client.destroy();
  socket.destroy();
  server.close();
});
