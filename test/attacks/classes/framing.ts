import * as fc from "fast-check";

import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { prepareForHttp } from "../surroundings.ts";
import type { SocketStep } from "../wire.ts";

const chatTarget = "/v1/chat/completions";
const targets = [chatTarget, "/v1/completions", "/v1/files", "/v1/batches"] as const;
const chatBody = '{"messages":[{"role":"user","content":"Hello?"}],"max_tokens":2}';

/** Ways in which a body declares its end; `%` stands for its length. */
const framings = [
  "Content-Length: %",
  "Content-Length: %\r\nContent-Length: %",
  "Content-Length: %\r\nContent-Length: 0",
  "Content-Length: 0",
  "Content-Length: 1",
  "Content-Length: -1",
  "Content-Length: +%",
  "Content-Length: 0x10",
  "Content-Length: 1e2",
  "Content-Length: %, %",
  "Content-Length: 99999999999999999999999",
  "Content-Length: 34359738368",
  "Content-Length:",
  "Content-Length : %",
  "Transfer-Encoding: chunked",
  "Transfer-Encoding: chunked\r\nContent-Length: %",
  "Content-Length: %\r\nTransfer-Encoding: chunked",
  "Transfer-Encoding: CHUNKED",
  "Transfer-Encoding: chunked, chunked",
  "Transfer-Encoding: gzip, chunked",
  "Transfer-Encoding: chunked, identity",
  "Transfer-Encoding: xchunked",
  "Transfer-Encoding:\tchunked",
  "Transfer-Encoding : chunked",
  "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
  "Transfer-Encoding:\r\n chunked",
  "X: a",
] as const;

/** Ways to write the body. */
const writings: Readonly<Record<string, (body: string) => string>> = {
  "as it is": (body) => body,
  "in chunks": (body) => `${inChunks(body)}0\r\n\r\n`,
  "in chunks with trailers": (body) => `${inChunks(body)}0\r\nX-Trailer: a\r\nContent-Length: 5\r\n\r\n`,
  "in chunks with extensions": (body) => `${body.length.toString(16)};a="b;c";d\r\n${body}\r\n0;e\r\n\r\n`,
  "in chunks with a long extension": (body) =>
    `${body.length.toString(16)};${"a".repeat(20_000)}\r\n${body}\r\n0\r\n\r\n`,
  "in chunks without an end": (body) => inChunks(body),
  "in a chunk of no size": (body) => `\r\n${body}\r\n0\r\n\r\n`,
  "in a chunk of negative size": (body) => `-1\r\n${body}\r\n0\r\n\r\n`,
  "in a chunk of 2^64": (body) => `10000000000000000\r\n${body}\r\n0\r\n\r\n`,
  "in a chunk that is too short": (body) => `3\r\n${body}\r\n0\r\n\r\n`,
  "in chunks with line feeds only": (body) => `${body.length.toString(16)}\n${body}\n0\n\n`,
  "in chunks of one byte": (body) => `${body.replaceAll(/[^]/g, "1\r\n$&\r\n")}0\r\n\r\n`,
  "cut short": (body) => body.slice(0, -7),
  "with a request behind it": (body) => `${body}GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n`,
  "not at all": () => "",
};

function inChunks(body: string): string {
  return `${body.length.toString(16)}\r\n${body}\r\n`;
}

const extraHeaders = [
  "Host: 127.0.0.1",
  "Host: a\r\nHost: b",
  "Host:",
  "Host: [::1",
  "Host: a b",
  `Host: ${"a.".repeat(3000)}`,
  "Host: 127.0.0.1:99999999",
  "Host: \u00ff",
  "Host: user@127.0.0.1/path?query#fragment",
  "Expect: 100-continue",
  "Expect: 200-ok",
  "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
  "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
  "Connection: close, keep-alive, a, b",
  "Connection: content-length",
  "Keep-Alive: timeout=1000000000, max=0",
  "Content-Type: application/json",
  "Content-Type: application/json\r\nContent-Type: text/plain",
  "No colon",
  ": no name",
  "Space Name: a",
  "Folded: a\r\n b\r\n\tc",
  "Nul: a\u0000b",
  "Line: a\rb",
  "\u00e9: a",
  `Long: ${"a".repeat(20_000)}`,
  `${"L".repeat(20_000)}: a`,
  Array.from({ length: 150 }, (_, index) => `X-${index}: a`).join("\r\n"),
  Array.from({ length: 3000 }, (_, index) => `X${index}: a`).join("\r\n"),
] as const;

const versions = [
  "HTTP/1.1",
  "HTTP/1.0",
  "HTTP/0.9",
  "HTTP/2.0",
  "HTTP/1.2",
  "HTTP/11",
  "http/1.1",
  "HTTPS/1.1",
  "",
  "HTTP/1.1 ",
] as const;
const lineEnds = ["\r\n", "\n", "\r", "\r\n\r\n"] as const;

/** Bytes that are not HTTP/1. */
const foreign = [
  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  "\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003",
  "SSH-2.0-OpenSSH_9.9\r\n",
  "*1\r\n$4\r\nPING\r\n",
  "EHLO a\r\n",
  "\r\n\r\n\r\n",
  "GET",
  "GET /\r\n\r\n",
  "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
  "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
  "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\n\r\n",
  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
  "\u0000".repeat(100_000),
  "A".repeat(100_000),
] as const;

/** Ways in which the client ends a conversation. */
const endings: readonly (readonly [name: string, steps: readonly SocketStep[]])[] = [
  ["listening", []],
  ["closing its half", [{ kind: "half-close" }]],
  ["resetting", [{ kind: "reset" }]],
  ["resetting after a while", [{ kind: "pause", ms: 3 }, { kind: "reset" }]],
];

const request = fc
  .record({
    target: fc.constantFrom(...targets),
    version: fc.oneof(
      { weight: 6, arbitrary: fc.constant("HTTP/1.1") },
      { weight: 1, arbitrary: fc.constantFrom(...versions) },
    ),
    lineEnd: fc.oneof(
      { weight: 12, arbitrary: fc.constant("\r\n") },
      { weight: 1, arbitrary: fc.constantFrom(...lineEnds) },
    ),
    framing: fc.constantFrom(...framings),
    writing: fc.constantFrom(...Object.keys(writings)),
    headers: fc.uniqueArray(fc.constantFrom(...extraHeaders), { maxLength: 3 }),
  })
  .map(({ target, version, lineEnd, framing, writing, headers }) => {
    const own = headers.some((line) => line.startsWith("Host")) ? [] : ["Host: 127.0.0.1"];
    const type = headers.some((line) => line.startsWith("Content-Type")) ? [] : ["Content-Type: application/json"];
    const lines = [...own, ...type, ...headers, framing.replaceAll("%", String(chatBody.length))];
    return {
      method: "POST",
      target,
      label: `${framing.slice(0, 40)}, ${writing}, ${headers.join(", ").slice(0, 60)}`,
      text: [`POST ${target} ${version}`, ...lines, "", writings[writing]!(chatBody)].join(lineEnd),
    };
  });

const foreignRequest = fc
  .constantFrom(...foreign)
  .map((text) => ({ method: "GET", target: "", label: `no HTTP/1: ${text.slice(0, 20)}`, text }));

const ordinary = {
  method: "POST",
  target: chatTarget,
  label: "a right request",
  text: `POST ${chatTarget} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${chatBody.length}\r\n\r\n${chatBody}`,
};

/** One or several requests on a connection, each with its own framing, written in pieces. */
const conversation: fc.Arbitrary<Attack> = fc
  .record({
    requests: fc.array(
      fc.oneof(
        { weight: 6, arbitrary: request },
        { weight: 1, arbitrary: foreignRequest },
        { weight: 2, arbitrary: fc.constant(ordinary) },
      ),
      { minLength: 1, maxLength: 3 },
    ),
    /** Ends of pieces, in thousandths of the whole. */
    cuts: fc.array(fc.nat(1000), { maxLength: 3 }),
    ending: fc.constantFrom(...endings),
  })
  .map(({ requests, cuts, ending: [endingName, lastSteps] }) => {
    const bytes = Buffer.from(requests.map(({ text }) => text).join(""), "latin1");
    const isRight = requests.every((one) => one === ordinary);
    return {
      route: `POST ${requests[0]!.target || chatTarget}`,
      label: `${requests.map(({ label }) => label).join(" + ")}, ${endingName}`,
      shown: shorten(`${JSON.stringify(bytes.toString("latin1"))} ${endingName}`, 3000),
      run: (wire) =>
        wire.play({
          requests,
          steps: [...inPieces(bytes, cuts), ...lastSteps],
          numDue: isRight && endingName === "listening" ? requests.length : 0,
        }),
    };
  });

function inPieces(bytes: Buffer, cuts: readonly number[]): SocketStep[] {
  const ends = [...cuts.map((share) => Math.floor((bytes.byteLength * share) / 1000)), bytes.byteLength].sort(
    (a, b) => a - b,
  );
  return ends.flatMap((end, index): SocketStep[] => [
    { kind: "write", bytes: bytes.subarray(ends[index - 1] ?? 0, end) },
    { kind: "pause", ms: 1 },
  ]);
}

/** HTTP itself: contradictory lengths, chunks, odd headers, pipelines, other protocols, early ends. */
export const framing: AttackClass = {
  name: "framing",
  title: "Broken HTTP: lengths, chunks, headers, pipelines, other protocols, early ends",
  numCases: 600,
  routes: targets.map((target) => `POST ${target}`),
  prepare: prepareForHttp,
  attacks: () => conversation,
};
