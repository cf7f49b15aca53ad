/**
 * An HTTP proxy in front of a server such as S3: it forwards requests, rejects them, or holds them without an answer.
 */
import { createServer, request as sendRequest } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/**
 * `hold` accepts the request and does not answer until `release`, which then forwards it, like a server that was
 * paused. `stall` forwards the request and passes on only the first bytes of the answer's body. `lose` forwards it, and
 * answers as if it had been rejected. `expire` rejects the credentials, `deny` says that they do not suffice, and
 * `invalid` that the request has a wrong value.
 */
export type Fate = "forward" | "refuse" | "hold" | "stall" | "lose" | "expire" | "deny" | "invalid";

export interface ProxiedRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  /** The operation of AWS's JSON protocol; empty for others. */
  readonly target: string;
  readonly body: Buffer;
}

export interface FaultProxy extends AsyncDisposable {
  readonly endpoint: string;
  /** All requests so far, in the order of their arrival, as `METHOD path`. */
  readonly requests: readonly string[];
  /** Decides about requests that arrive from now on. At first all are forwarded. */
  decide(fateOf: (request: ProxiedRequest) => Fate): void;
  /** Forwards held requests, also of clients that have disconnected. */
  release(): void;
}

/** Bytes of a stalling answer that are passed on. */
const NUM_STALLED_BYTES = 1000;
const EXPIRY = ["ExpiredToken", "The provided token has expired."] as const;
const DENIAL = ["AccessDenied", "The user is not authorized to perform this operation."] as const;
const INVALIDITY = ["InvalidParameterValue", "One or more parameters are invalid."] as const;
const REFUSAL = "<Error><Code>ServiceUnavailable</Code><Message>Reduce your request rate.</Message></Error>";

export async function startFaultProxy(target: string): Promise<FaultProxy> {
  const requests: string[] = [];
  const held: (() => void)[] = [];
  let fateOf: (request: ProxiedRequest) => Fate = () => "forward";

  const refuse = (outgoing: ServerResponse): void => {
    outgoing.writeHead(503, { "content-type": "application/xml" }).end(REFUSAL);
  };

  const forward = (incoming: IncomingMessage, body: Buffer, outgoing: ServerResponse, fate?: Fate): void => {
    const { method, url, headers } = incoming;
    const sent = sendRequest(new URL(url ?? "/", target), { method, headers }, (answer) => {
      if (fate === "lose") {
        answer.resume();
        return refuse(outgoing);
      }
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      if (fate !== "stall") return void answer.pipe(outgoing);
      answer.once("data", (chunk: Buffer) => outgoing.write(chunk.subarray(0, NUM_STALLED_BYTES)));
      answer.resume();
    });
    sent.on("error", () => outgoing.destroy());
    sent.end(body);
  };

  const answer = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const body = await readAll(incoming);
    if (body === null) return;
    const { method = "", url: path = "" } = incoming;
    requests.push(`${method} ${path}`);
    const fate = fateOf({ method, path, target: String(incoming.headers["x-amz-target"] ?? ""), body });
    switch (fate) {
      case "forward":
      case "stall":
      case "lose":
        return forward(incoming, body, outgoing, fate);
      case "hold":
        held.push(() => forward(incoming, body, outgoing));
        return;
      case "refuse":
        return refuse(outgoing);
      case "expire":
        return answerError(incoming, outgoing, EXPIRY);
      case "deny":
        return answerError(incoming, outgoing, DENIAL);
      case "invalid":
        return answerError(incoming, outgoing, INVALIDITY);
    }
  };
  const server = createServer((incoming, outgoing) => void answer(incoming, outgoing));
  const listening = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    decide: (decide) => void (fateOf = decide),
    release() {
      for (const forwardHeld of held.splice(0)) forwardHeld();
    },
    async [Symbol.asyncDispose]() {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      server.closeAllConnections();
      await closed.promise;
    },
  };
}

/** In the client's protocol: SQS has JSON, S3 has XML. */
function answerError(
  { headers }: IncomingMessage,
  outgoing: ServerResponse,
  [code, message]: readonly [string, string],
): void {
  const isJson = headers["content-type"]?.includes("json") === true;
  const body = isJson
    ? JSON.stringify({ __type: `com.amazon.coral.service#${code}`, message })
    : `<Error><Code>${code}</Code><Message>${message}</Message></Error>`;
  outgoing.writeHead(400, { "content-type": isJson ? "application/x-amz-json-1.0" : "application/xml" }).end(body);
}

/** Null if the client disconnected in the middle of its request, which is then not forwarded. */
async function readAll(incoming: IncomingMessage): Promise<Buffer | null> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
    return Buffer.concat(chunks);
  } catch {
    return null;
  }
}
