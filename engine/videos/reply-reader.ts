/** Splits what the decoding process writes into replies. */
import { invariant } from "../contract/errors.ts";
import { MAX_REPLY_HEADER_BYTES, parseReply, payloadBytesOf, type VideoReply } from "./video-reply.ts";

/** What is done with the replies of a process that may write anything. Both may throw. */
export interface ReplyTaker {
  /** Gets each header before memory for its payload is allocated, and throws for one that is not expected. */
  accept(reply: VideoReply): void;
  /** Gets each reply once it is complete, with an array of its own. */
  take(reply: VideoReply, payload: Uint8Array): void;
}

/** Holds at most one header or one payload. Mutable. */
export class ReplyReader {
  readonly #taker: ReplyTaker;
  /** Being filled: the length of a header, a header, or the payload of `#reply`. */
  #part: Uint8Array = new Uint8Array(4);
  #numFilled = 0;
  #reads: "length" | "header" | "payload" = "length";
  #reply: VideoReply | null = null;

  constructor(taker: ReplyTaker) {
    this.#taker = taker;
  }

  /** Throws Error for anything else than a reply, and what the taker throws. Then it must not be called again. */
  read(chunk: Uint8Array): void {
    let position = 0;
    while (position < chunk.byteLength) {
      const numCopied = Math.min(chunk.byteLength - position, this.#part.byteLength - this.#numFilled);
      this.#part.set(chunk.subarray(position, position + numCopied), this.#numFilled);
      position += numCopied;
      this.#numFilled += numCopied;
      // Empty parts are complete at once.
      while (this.#numFilled === this.#part.byteLength) this.#completePart();
    }
  }

  #completePart(): void {
    const part = this.#part;
    switch (this.#reads) {
      case "length": {
        const length = new DataView(part.buffer).getUint32(0, true);
        if (length === 0 || length > MAX_REPLY_HEADER_BYTES) throw new Error(`a header of ${length} bytes`);
        this.#start("header", length);
        return;
      }
      case "header":
        this.#reply = parseReply(part);
        this.#taker.accept(this.#reply);
        this.#start("payload", payloadBytesOf(this.#reply));
        return;
      case "payload":
        invariant(this.#reply !== null, "a payload belongs to a reply");
        this.#start("length", 4);
        this.#taker.take(this.#reply, part);
        return;
      default:
        this.#reads satisfies never;
    }
  }

  #start(reads: "length" | "header" | "payload", numBytes: number): void {
    this.#reads = reads;
    this.#part = new Uint8Array(numBytes);
    this.#numFilled = 0;
  }
}
