/** Messages to the engine thread, which runs without a pause between steps and so sees no events then. */
import { receiveMessageOnPort } from "node:worker_threads";
import type { MessagePort } from "node:worker_threads";

import type { ToEngineThread } from "./messages.ts";

/** Mutable. */
export class Inbox {
  readonly #port: MessagePort;
  /** Delivered by event while the thread slept, in order. */
  #delivered: ToEngineThread[] = [];
  #wake: () => void = () => undefined;

  constructor(port: MessagePort) {
    this.#port = port;
    // Never removed: Node drops messages that arrive while nobody listens.
    port.on("message", (message: ToEngineThread) => {
      this.#delivered.push(message);
      this.#wake();
    });
  }

  /** All messages that have arrived, oldest first; does not wait. */
  take(): ToEngineThread[] {
    const messages = this.#delivered;
    this.#delivered = [];
    for (;;) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined) return messages;
      messages.push(received.message as ToEngineThread);
    }
  }

  /** Resolves to true once `take` would return something; to false where nothing has come for `timeoutMs`. */
  async nextMessage(timeoutMs?: number): Promise<boolean> {
    if (this.#delivered.length > 0) return true;
    return new Promise<boolean>((resolve) => {
      const timer = timeoutMs === undefined ? undefined : setTimeout(() => resolve(false), timeoutMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }
}
