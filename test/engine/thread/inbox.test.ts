import { MessageChannel } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";

import { Inbox } from "../../../engine/thread/inbox.ts";
import type { ToEngineThread } from "../../../engine/thread/messages.ts";

const abort: ToEngineThread = { kind: "abort", requestIds: ["one"] };
const close: ToEngineThread = { kind: "close" };

function createInbox(): { inbox: Inbox; send: (message: ToEngineThread) => void } {
  const { port1, port2 } = new MessageChannel();
  onTestFinished(() => port1.close());
  return { inbox: new Inbox(port2), send: (message) => port1.postMessage(message) };
}

test("what was sent is taken once, in order", async () => {
  const { inbox, send } = createInbox();
  send(abort);
  send(close);
  expect(await inbox.nextMessage()).toBe(true);
  expect(inbox.take()).toEqual([abort, close]);
  expect(inbox.take()).toEqual([]);
});

test("waiting ends with the time given where nothing comes, and the next wait sees what comes then", async () => {
  const { inbox, send } = createInbox();
  expect(await inbox.nextMessage(1)).toBe(false);
  const next = inbox.nextMessage();
  send(close);
  expect(await next).toBe(true);
  expect(inbox.take()).toEqual([close]);
});

test("a message in time ends the wait early", async () => {
  const { inbox, send } = createInbox();
  const next = inbox.nextMessage(2 ** 31 - 1);
  send(abort);
  expect(await next).toBe(true);
  expect(await inbox.nextMessage(0)).toBe(true);
  expect(inbox.take()).toEqual([abort]);
});
