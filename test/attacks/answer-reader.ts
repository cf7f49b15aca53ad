/** Reads HTTP/1.1 answers from the bytes of a connection, strictly by RFC 9112. */

/** One HTTP answer from the client's point of view. */
export interface Answer {
  readonly method: string;
  /** As requested, including the query. */
  readonly target: string;
  readonly status: number;
  /** Names in lower case; the last value of a repeated name. */
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** False if the client left before the end. */
  readonly isComplete: boolean;
}

interface Asked {
  readonly method: string;
  readonly target: string;
}

/** Mutable; for one connection. */
export class AnswerReader {
  readonly #asked: readonly Asked[];
  readonly #answers: Answer[] = [];
  #bytes: Buffer = Buffer.alloc(0);

  /** @param asked The requests on the connection, in order. Surplus answers count as answers to the last. */
  constructor(asked: readonly Asked[]) {
    this.#asked = asked;
  }

  /** Complete answers. */
  get answers(): readonly Answer[] {
    return this.#answers;
  }

  add(chunk: Uint8Array): void {
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    this.#readWhole(false);
  }

  /** Ends the connection, and with it an answer without a length. Throws if bytes are left that are not an answer. */
  end(): void {
    this.#readWhole(true);
    if (this.#bytes.byteLength > 0) {
      throw new Error(`The connection ended with what is no whole answer: ${this.#bytes.toString().slice(0, 200)}`);
    }
  }

  #readWhole(isEnd: boolean): void {
    for (;;) {
      const asked = this.#asked[this.#answers.length] ?? this.#asked.at(-1) ?? { method: "GET", target: "" };
      const read = readAnswer(this.#bytes, asked, isEnd);
      if (read === null) return;
      this.#bytes = this.#bytes.subarray(read.numBytes);
      if (read.answer.status >= 200) this.#answers.push(read.answer);
    }
  }
}

interface ReadAnswer {
  readonly answer: Answer;
  readonly numBytes: number;
}

/** Null if it is not complete yet. */
function readAnswer(bytes: Buffer, { method, target }: Asked, isEnd: boolean): ReadAnswer | null {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return null;
  const [statusLine, ...lines] = bytes.subarray(0, headEnd).toString("latin1").split("\r\n");
  const status = Number(/^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine!)?.[1]);
  if (Number.isNaN(status)) throw new Error(`No status line: ${statusLine!.slice(0, 200)}`);
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(":");
      if (colon < 1) throw new Error(`No header: ${line.slice(0, 200)}`);
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  const rest = bytes.subarray(headEnd + 4);
  const hasBody = method !== "HEAD" && status >= 200 && status !== 204 && status !== 304;
  const body = hasBody ? readBody(rest, headers, isEnd) : { text: "", numBytes: 0 };
  if (body === null) return null;
  return {
    answer: { method, target, status, headers, text: body.text, isComplete: true },
    numBytes: headEnd + 4 + body.numBytes,
  };
}

interface ReadBody {
  readonly text: string;
  readonly numBytes: number;
}

function readBody(bytes: Buffer, headers: Readonly<Record<string, string>>, isEnd: boolean): ReadBody | null {
  if (/\bchunked$/i.test(headers["transfer-encoding"] ?? "")) return readChunked(bytes);
  const length = headers["content-length"];
  if (length === undefined) return isEnd ? { text: bytes.toString(), numBytes: bytes.byteLength } : null;
  const numBytes = Number(length);
  if (bytes.byteLength < numBytes) return null;
  return { text: bytes.subarray(0, numBytes).toString(), numBytes };
}

function readChunked(bytes: Buffer): ReadBody | null {
  const chunks: Buffer[] = [];
  let at = 0;
  for (;;) {
    const lineEnd = bytes.indexOf("\r\n", at);
    if (lineEnd < 0) return null;
    const size = Number.parseInt(bytes.subarray(at, lineEnd).toString("latin1"), 16);
    if (Number.isNaN(size)) throw new Error("A chunk has no size.");
    const chunkEnd = lineEnd + 2 + size;
    if (bytes.byteLength < chunkEnd + 2) return null;
    if (size === 0) return { text: Buffer.concat(chunks).toString(), numBytes: chunkEnd + 2 };
    chunks.push(bytes.subarray(lineEnd + 2, chunkEnd));
    at = chunkEnd + 2;
  }
}
