/** The JavaScript heaps of all threads of another process, through Node's inspector. */
import { setTimeout as delay } from "node:timers/promises";

const CONNECT_POLL_MS = 20;
/** A thread that sleeps in `Atomics.wait` between two tasks does not answer. */
const ANSWER_MS = 3000;

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

export interface IsolateMemory {
  /** `main`, or the name that the program gave the thread. */
  readonly name: string;
  /** Bytes of reachable objects and of the buffers that belong to them, after a collection. */
  readonly usedBytes: number;
}

type Send = (method: string, params?: object) => Promise<Record<string, unknown>>;

/** Answers of one isolate, by the ids of their requests. */
class Session {
  #nextId = 1;
  readonly #pending = new Map<number, PromiseWithResolvers<Record<string, unknown>>>();
  readonly #write: (text: string) => void;

  constructor(write: (text: string) => void) {
    this.#write = write;
  }

  readonly send: Send = (method, params = {}) => {
    const id = this.#nextId++;
    const answer = Promise.withResolvers<Record<string, unknown>>();
    this.#pending.set(id, answer);
    this.#write(JSON.stringify({ id, method, params }));
    return answer.promise;
  };

  receive({ id, result, error }: Message): void {
    const answer = this.#pending.get(id!);
    this.#pending.delete(id!);
    if (error === undefined) answer?.resolve(result ?? {});
    else answer?.reject(new Error(error.message));
  }

  /** The thread has ended. */
  close(): void {
    for (const { reject } of this.#pending.values()) reject(new IsolateEnded());
    this.#pending.clear();
  }
}

class IsolateEnded extends Error {}

const readMemory = `(() => {
  const { heapUsed, external } = process.memoryUsage();
  return JSON.stringify({ usedBytes: heapUsed + external });
})()`;

/** Null if the thread ends meanwhile. */
async function measure({ send }: Session, name: string): Promise<IsolateMemory | null> {
  try {
    await send("HeapProfiler.collectGarbage");
    const answer = await send("Runtime.evaluate", { expression: readMemory, returnByValue: true });
    const { value } = answer.result as { readonly value?: unknown };
    // V8 answers with a text of its own for a thread that is being ended.
    if (typeof value !== "string" || !value.startsWith("{")) return null;
    return { name, ...(JSON.parse(value) as Omit<IsolateMemory, "name">) };
  } catch (error) {
    if (error instanceof IsolateEnded) return null;
    throw error;
  }
}

/** Mutable. Connected to a process that was started with `--inspect=127.0.0.1:PORT`. */
export class InspectedIsolates implements Disposable {
  readonly #socket: WebSocket;
  readonly #main: Session;
  readonly #workers = new Map<string, { readonly name: string; readonly session: Session }>();

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    this.#main = new Session((text) => socket.send(text));
    socket.addEventListener("message", ({ data }) => this.#receive(JSON.parse(String(data)) as Message));
  }

  static async connect(port: number): Promise<InspectedIsolates> {
    for (;;) {
      const targets = await fetch(`http://127.0.0.1:${port}/json/list`).then(
        (response) => response.json() as Promise<{ readonly webSocketDebuggerUrl: string }[]>,
        () => [],
      );
      const target = targets[0];
      if (target === undefined) {
        await delay(CONNECT_POLL_MS);
        continue;
      }
      const socket = new WebSocket(target.webSocketDebuggerUrl);
      const opened = Promise.withResolvers<void>();
      socket.addEventListener("open", () => opened.resolve(), { once: true });
      socket.addEventListener("error", () => opened.reject(new Error("The inspector refused the connection.")));
      await opened.promise;
      const isolates = new InspectedIsolates(socket);
      await isolates.#main.send("NodeWorker.enable", { waitForDebuggerOnStart: false });
      return isolates;
    }
  }

  /**
   * Collects garbage in every thread, then reads every heap, the main thread's first. Leaves out threads that end
   * meanwhile or are asleep.
   */
  async measure(): Promise<IsolateMemory[]> {
    const results = [await measure(this.#main, "main")];
    for (const { name, session } of this.#workers.values()) {
      results.push(await Promise.race([measure(session, name), delay(ANSWER_MS, null)]));
    }
    return results.filter((memory) => memory !== null);
  }

  /** The value of an expression in the main thread, which must be JSON. */
  async evaluate(expression: string): Promise<unknown> {
    const answer = await this.#main.send("Runtime.evaluate", { expression, returnByValue: true });
    if (answer.exceptionDetails !== undefined) throw new Error(`${expression} fails in the service.`);
    return (answer.result as { readonly value?: unknown }).value;
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }

  #receive(message: Message): void {
    const params = message.params ?? {};
    switch (message.method) {
      case undefined:
        return this.#main.receive(message);
      case "NodeWorker.attachedToWorker": {
        const sessionId = params.sessionId as string;
        const { title } = params.workerInfo as { readonly title: string };
        const session = new Session((text) => {
          this.#main.send("NodeWorker.sendMessageToWorker", { sessionId, message: text }).catch(() => session.close());
        });
        // A title is "[worker 1] NAME".
        this.#workers.set(sessionId, { name: title.replace(/^\[worker \d+\] */, ""), session });
        return;
      }
      case "NodeWorker.receivedMessageFromWorker": {
        const answer = JSON.parse(params.message as string) as Message;
        return this.#workers.get(params.sessionId as string)?.session.receive(answer);
      }
      case "NodeWorker.detachedFromWorker": {
        const sessionId = params.sessionId as string;
        this.#workers.get(sessionId)?.session.close();
        this.#workers.delete(sessionId);
      }
    }
  }
}
