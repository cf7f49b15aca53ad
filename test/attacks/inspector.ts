/** A client of Node's inspector protocol. https://chromedevtools.github.io/devtools-protocol/v8/ */

interface Reply {
  readonly id?: number;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

/** Mutable: one connection. */
export class Inspector {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, PromiseWithResolvers<Record<string, unknown>>>();
  #lastId = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#take(JSON.parse(String(data)) as Reply));
    socket.addEventListener("close", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error("The inspected process has ended."));
      this.#waiting.clear();
    });
  }

  static async connect(url: string): Promise<Inspector> {
    const socket = new WebSocket(url);
    const opened = Promise.withResolvers<void>();
    socket.addEventListener("open", () => opened.resolve());
    socket.addEventListener("error", () => opened.reject(new Error(`No inspector listens at ${url}.`)));
    await opened.promise;
    return new Inspector(socket);
  }

  /** Rejects with the inspector's error, or when the process ends. */
  async call(method: string, parameters: object = {}): Promise<Record<string, unknown>> {
    if (this.#socket.readyState !== WebSocket.OPEN) throw new Error("The inspected process has ended.");
    const id = ++this.#lastId;
    const reply = Promise.withResolvers<Record<string, unknown>>();
    this.#waiting.set(id, reply);
    this.#socket.send(JSON.stringify({ id, method, params: parameters }));
    return reply.promise;
  }

  close(): void {
    this.#socket.close();
  }

  #take({ id, result, error }: Reply): void {
    if (id === undefined) return;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error === undefined) waiting?.resolve(result ?? {});
    else waiting?.reject(new Error(error.message));
  }
}
