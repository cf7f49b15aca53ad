import * as fc from "fast-check";

import type { Attack, AttackClass } from "../attack.ts";
import { openSurroundings } from "../surroundings.ts";
import type { Wire } from "../wire.ts";

const MAX_CONNECTIONS = 40;
const ordinaryBody = { prompt: "a red", max_tokens: 1, temperature: 0 };

const jsonHead = "Host: a\r\nContent-Type: application/json\r\n";
const formHead = "Host: a\r\nContent-Type: multipart/form-data; boundary=b\r\n";
const formStart =
  '--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n{"custom_id":';

/** Bytes written on a connection before it stalls. */
const beginnings = {
  nothing: "",
  "half a request line": "POST /v1/chat/comp",
  "half a head": `POST /v1/chat/completions HTTP/1.1\r\n${jsonHead}`,
  "no body of a chat": `POST /v1/chat/completions HTTP/1.1\r\n${jsonHead}Content-Length: 100\r\n\r\n`,
  "half the body of a chat": `POST /v1/chat/completions HTTP/1.1\r\n${jsonHead}Content-Length: 100\r\n\r\n{"messages":[`,
  "all but one byte of the body of a completion": `POST /v1/completions HTTP/1.1\r\n${jsonHead}Content-Length: 15\r\n\r\n{"prompt":"a"}`,
  "chunks without an end": `POST /v1/completions HTTP/1.1\r\n${jsonHead}Transfer-Encoding: chunked\r\n\r\n4\r\n{"pr\r\n`,
  "a batch that waits to go on": `POST /v1/batches HTTP/1.1\r\n${jsonHead}Expect: 100-continue\r\nContent-Length: 100\r\n\r\n`,
  "half a form": `POST /v1/files HTTP/1.1\r\n${formHead}Content-Length: 1000\r\n\r\n${formStart}`,
  "a form in chunks without an end": `POST /v1/files HTTP/1.1\r\n${formHead}Transfer-Encoding: chunked\r\n\r\n${formStart.length.toString(16)}\r\n${formStart}\r\n`,
  "a body on a probe": `GET /health HTTP/1.1\r\n${jsonHead}Content-Length: 100\r\n\r\n{`,
  "a request and half of the next": `GET /v1/models HTTP/1.1\r\n${jsonHead}\r\nGET /v1/mod`,
} as const;

/** More connections than admitted requests stall in the middle, without an effect on others. */
export const stalls: AttackClass = {
  name: "stalls",
  title: "Bodies and heads that never end, more at once than requests are admitted",
  numCases: 24,
  routes: ["POST /v1/chat/completions", "POST /v1/completions", "POST /v1/files", "POST /v1/batches", "GET /health"],
  prepare: () => openSurroundings({ MAX_NUM_SEQS: "4", MAX_NUM_WAITING: "8" }),
  attacks: () =>
    fc
      .tuple(
        fc.constantFrom(...(Object.keys(beginnings) as (keyof typeof beginnings)[])),
        fc.integer({ min: 1, max: MAX_CONNECTIONS }),
      )
      .map(([name, count]) => createAttack(name, count)),
  groupSize: 1,
};

function createAttack(name: keyof typeof beginnings, count: number): Attack {
  const text: string = beginnings[name];
  return {
    route: /^\w+ \/\S+(?= HTTP)/.exec(text)?.[0] ?? "POST /v1/chat/completions",
    label: `${count} connections with ${name}`,
    shown: `${count} × ${JSON.stringify(text)}`,
    run: (wire) => holdAndAsk(wire, Buffer.from(text), count),
  };
}

async function holdAndAsk(wire: Wire, bytes: Buffer, count: number): ReturnType<Attack["run"]> {
  await using held = new AsyncDisposableStack();
  const connections = await Promise.all(Array.from({ length: count }, () => wire.hold(bytes)));
  for (const connection of connections) held.use(connection);
  const answers = [
    await wire.get("/health"),
    await wire.sendJson("/v1/completions", ordinaryBody),
    await wire.get("/v1/files"),
  ];
  const refused = answers.find(({ status }) => status !== 200);
  if (refused)
    throw new Error(`Beside them a right request is refused: ${refused.status} ${refused.text.slice(0, 200)}`);
  return answers;
}
