/** Messages to the engine thread. It runs without a pause between steps and therefore sees no events then. */
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
    // Never removed: Node drops messages that arrive without a listener.
    port.on("message", (message: ToEngineThread) => {
      this.#delivered.push(message);
      this.#wake();
    });
  }

  /** Returns all messages that have arrived, oldest first, without waiting. */
  take(): ToEngineThread[] {
    const messages = this.#delivered;
    this.#delivered = [];
    for (;;) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined) return messages;
      messages.push(received.message as ToEngineThread);
    }
  }

  /** Resolves to true once `take` would return something, or to false if nothing arrives for `timeoutMs`. */
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
