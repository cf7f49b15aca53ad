/** The stream of a RunPod job: server-sent events as text, in as few posts as RunPod's speed allows. */

/** RunPod's limit for a chunk is 1 MB. */
const MAX_CHUNK_CHARACTERS = 250_000;
/** Text that may wait to be sent before the answer has to wait. */
const MAX_WAITING_CHARACTERS = 1_000_000;

/** Mutable. While one post is under way, the next chunks gather for the one after it. */
export class RunpodStream {
  readonly #post: (text: string) => Promise<void>;
  readonly #onFailed: (error: unknown) => void;
  #waiting = "";
  #sending: Promise<void> | null = null;
  #hasFailed = false;
  #hasBegun = false;

  /** `onFailed` is called once: a stream that has lost a part does not go on. */
  constructor(post: (text: string) => Promise<void>, onFailed: (error: unknown) => void) {
    this.#post = post;
    this.#onFailed = onFailed;
  }

  /** Whether the sender may have seen a part of it. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Resolves when there is room for the next chunk. Never rejects. */
  async write(text: string): Promise<void> {
    if (this.#hasFailed) return;
    this.#hasBegun = true;
    this.#waiting += text;
    this.#sending ??= this.#send().finally(() => (this.#sending = null));
    if (this.#waiting.length > MAX_WAITING_CHARACTERS) await this.#sending;
  }

  /** Resolves when all is sent. Never rejects. */
  async end(): Promise<void> {
    await this.#sending;
  }

  async #send(): Promise<void> {
    while (this.#waiting !== "") {
      const text = firstPart(this.#waiting);
      this.#waiting = this.#waiting.slice(text.length);
      try {
        await this.#post(text);
      } catch (error) {
        this.#hasFailed = true;
        this.#waiting = "";
        this.#onFailed(error);
      }
    }
  }
}

/** Does not cut a character that takes two units. */
function firstPart(text: string): string {
  const isCut = /[\ud800-\udbff]/.test(text.charAt(MAX_CHUNK_CHARACTERS - 1));
  return text.slice(0, isCut ? MAX_CHUNK_CHARACTERS - 1 : MAX_CHUNK_CHARACTERS);
}
