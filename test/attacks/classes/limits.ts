import * as fc from "fast-check";

import type { Answer } from "../answer-reader.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { HTTP_LIMIT_BYTES, prepareForHttp } from "../surroundings.ts";
import type { Wire } from "../wire.ts";

const routes = ["/v1/chat/completions", "/v1/completions", "/v1/batches", "/v1/files"] as const;

interface Parts {
  readonly target: (typeof routes)[number];
  /** Bytes above the limit. */
  readonly numExcessBytes: number;
  readonly isAnnounced: boolean;
  /** True for a client that writes everything before it reads, false for one that does both. */
  readonly isRaw: boolean;
}

/** Bodies above the limits, written to their end: the sender must learn why they are rejected. */
export const limits: AttackClass = {
  name: "limits",
  title: "Bodies and files beyond their limits",
  numCases: 16,
  routes: routes.map((target) => `POST ${target}`),
  prepare: prepareForHttp,
  attacks: () =>
    fc
      .record({
        target: fc.constantFrom(...routes),
        numExcessBytes: fc.constantFrom(2 ** 19, 2 ** 20, 2 ** 24),
        isAnnounced: fc.boolean(),
        isRaw: fc.boolean(),
      })
      .map(createAttack),
  groupSize: 4,
};

function createAttack(parts: Parts): Attack {
  const { target, numExcessBytes, isAnnounced, isRaw } = parts;
  const label = `${numExcessBytes} bytes too many, ${isAnnounced ? "announced" : "in chunks"}${isRaw ? ", on a socket" : ""}`;
  return {
    route: `POST ${target}`,
    label,
    shown: `POST ${target}: ${label}`,
    async run(wire) {
      const answers = await (isRaw ? writeRaw(wire, parts) : send(wire, parts));
      const wrong = answers.find(({ status }) => status !== 413);
      if (wrong) throw new Error(`Status ${wrong.status} for a body that is too long: ${wrong.text.slice(0, 200)}`);
      return answers;
    },
  };
}

async function send(wire: Wire, { target, numExcessBytes, isAnnounced }: Parts): Promise<readonly Answer[]> {
  const { type, bytes } = bodyOf(target, numExcessBytes);
  const body = isAnnounced ? bytes : inPieces(bytes);
  return [await wire.send({ method: "POST", target, headers: { "content-type": type }, body })];
}

async function* inPieces(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.byteLength; at += 65_536) yield bytes.subarray(at, at + 65_536);
}

function writeRaw(wire: Wire, { target, numExcessBytes, isAnnounced }: Parts): Promise<readonly Answer[]> {
  const { type, bytes } = bodyOf(target, numExcessBytes);
  const framing = isAnnounced ? `Content-Length: ${bytes.byteLength}` : "Transfer-Encoding: chunked";
  const head = Buffer.from(`POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Type: ${type}\r\n${framing}\r\n\r\n`);
  const chunk = Buffer.concat([
    Buffer.from(`${bytes.byteLength.toString(16)}\r\n`),
    bytes,
    Buffer.from("\r\n0\r\n\r\n"),
  ]);
  return wire.play({
    requests: [{ method: "POST", target }],
    steps: [{ kind: "write", bytes: Buffer.concat([head, isAnnounced ? bytes : chunk]) }],
    numDue: 1,
  });
}

function bodyOf(target: string, numExcessBytes: number): { readonly type: string; readonly bytes: Buffer } {
  const filling = Buffer.alloc(HTTP_LIMIT_BYTES + numExcessBytes, "a");
  if (target !== "/v1/files") {
    return { type: "application/json", bytes: Buffer.concat([Buffer.from('{"prompt":"'), filling, Buffer.from('"}')]) };
  }
  const start = '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n';
  const bytes = Buffer.concat([Buffer.from(start), filling, Buffer.from("\r\n--b--\r\n")]);
  return { type: "multipart/form-data; boundary=b", bytes };
}
