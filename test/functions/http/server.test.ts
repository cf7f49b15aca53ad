import { once } from "node:events";
import type { RequestListener } from "node:http";
import { connect } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, test } from "vitest";

import { openServer } from "../../../functions/http/server.ts";
import type { OpenServer } from "../../../functions/http/server.ts";
import { pauseProcess } from "../../support/pause-process.ts";
import { openSocket, readAnswer } from "../../support/requests/raw-connection.ts";

const stallTimeoutMs = 50;

function open(listener: RequestListener): Promise<OpenServer> {
  return openServer({ host: "127.0.0.1", port: 0 }, Promise.resolve(listener), { timeouts: { stall: stallTimeoutMs } });
}

test("a reader that stops in the middle of an answer loses its connection", async () => {
  const closed = Promise.withResolvers<boolean>();
  const server = await open((_request, response) => {
    response.once("close", () => closed.resolve(response.writableFinished));
    // More than the buffers between the two hold.
    response.write(Buffer.alloc(64 * 2 ** 20));
  });
  const socket = connect(server.port, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.pause();
  socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  expect(await closed.promise).toBe(false);
  socket.destroy();
  await server.close();
});

test("a client that waits longer than that for a silent answer receives it", async () => {
  const server = await open((_request, response) => void setTimeout(() => response.end("late"), 5 * stallTimeoutMs));
  const response = await fetch(`http://127.0.0.1:${server.port}/`);
  expect(await response.text()).toBe("late");
  await server.close();
});

describe("a connection without a request", () => {
  const keepAlive = 20;
  /** Node keeps a connection for a second longer than it announces. */
  const closedAfterMs = keepAlive + 1000;

  async function openIdle() {
    const server = await openServer(
      { host: "127.0.0.1", port: 0 },
      Promise.resolve((_request, response) => void response.end("answer")),
      { timeouts: { keepAlive } },
    );
    const socket = await openSocket(`http://127.0.0.1:${server.port}`);
    socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await once(socket, "data");
    // From here on, timers run before sockets are read.
    await turn();
    return { server, socket };
  }

  test("is closed after the time limit", async () => {
    const { server, socket } = await openIdle();
    await once(socket.resume(), "close");
    expect(socket.destroyed).toBe(true);
    await server.close();
  });

  test("answers a request that arrived while the process was paused for longer than that", async () => {
    const { server, socket } = await openIdle();
    socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    pauseProcess(closedAfterMs + 500);
    expect(await readAnswer(socket)).toMatchObject({ status: 200, body: "answer" });
    await server.close();
  });
});

test("a server with all its connections closes those that are silent, and keeps those with requests", async () => {
  let numRejected = 0;
  const answer = Promise.withResolvers<void>();
  const server = await openServer(
    { host: "127.0.0.1", port: 0 },
    Promise.resolve(({ url }, response) => {
      if (url === "/fast") response.end("fast");
      else void answer.promise.then(() => response.end("slow"));
    }),
    { maxNumConnections: 3, onFull: () => (numRejected += 1) },
  );
  const url = `http://127.0.0.1:${server.port}`;
  const slow = fetch(`${url}/slow`);
  const closed = Array.from({ length: 2 }, async () => {
    const socket = connect(server.port, "127.0.0.1");
    await once(socket, "connect");
    await once(socket.resume(), "close");
  });
  await expect
    .poll(async () => (await fetch(`${url}/fast`).catch(() => null))?.text(), { timeout: 60_000 })
    .toBe("fast");
  await Promise.all(closed);
  expect(numRejected).toBeGreaterThan(0);
  answer.resolve();
  expect(await (await slow).text()).toBe("slow");
  await server.close();
}, 120_000);
