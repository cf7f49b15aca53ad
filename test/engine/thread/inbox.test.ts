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

test("a sent message is received once, in order", async () => {
  const { inbox, send } = createInbox();
  send(abort);
  send(close);
  expect(await inbox.nextMessage()).toBe(true);
  expect(inbox.take()).toEqual([abort, close]);
  expect(inbox.take()).toEqual([]);
});

test("a wait ends after its time if no message comes, and the next wait receives later messages", async () => {
  const { inbox, send } = createInbox();
  expect(await inbox.nextMessage(1)).toBe(false);
  const next = inbox.nextMessage();
  send(close);
  expect(await next).toBe(true);
  expect(inbox.take()).toEqual([close]);
});

test("a message ends the wait early", async () => {
  const { inbox, send } = createInbox();
  const next = inbox.nextMessage(2 ** 31 - 1);
  send(abort);
  expect(await next).toBe(true);
  expect(await inbox.nextMessage(0)).toBe(true);
  expect(inbox.take()).toEqual([abort]);
});
