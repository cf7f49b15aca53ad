import { randomUUID } from "node:crypto";
import * as fc from "fast-check";

import type { Answer } from "../answer-reader.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { sceneUrl } from "../generators/bodies.ts";
import { openSurroundings } from "../surroundings.ts";
import type { Wire } from "../wire.ts";

const chat = (fields: object) => ({
  messages: [
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: sceneUrl } },
        { type: "text", text: "Describe the picture." },
      ],
    },
  ],
  ...fields,
});
const endless = { temperature: 1, max_tokens: 1e9, ignore_eos: true, skip_special_tokens: false };

interface Generation {
  readonly target: string;
  readonly body: object;
}

const generation: fc.Arbitrary<Generation> = fc
  .record({
    target: fc.constantFrom("/v1/chat/completions", "/v1/completions"),
    n: fc.integer({ min: 1, max: 4 }),
    stream: fc.boolean(),
    hasLogprobs: fc.boolean(),
  })
  .map(({ target, n, stream, hasLogprobs }) => {
    const fields = { ...endless, n, stream };
    if (target === "/v1/completions")
      return { target, body: { prompt: "a", ...fields, ...(hasLogprobs && { logprobs: 5 }) } };
    return { target, body: chat({ ...fields, ...(hasLogprobs && { logprobs: true, top_logprobs: 20 }) }) };
  });

/** Leaves in the middle of an answer, or before it has started. */
const leaving = fc.tuple(generation, fc.nat(6)).map(([{ target, body }, numChunks]): Attack => ({
  route: `POST ${target}`,
  label: `leaves after ${numChunks} chunks`,
  shown: JSON.stringify(body).slice(-300),
  run: async (wire) => [
    await wire.send({
      method: "POST",
      target,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      leaveAfterChunks: numChunks,
    }),
  ],
}));

/** Sends and resets, sooner or later; or reads nothing of a long answer for a while. */
const resetting = fc
  .record({ generation, afterMs: fc.nat(40), isDeaf: fc.boolean(), share: fc.integer({ min: 500, max: 1000 }) })
  .map(({ generation: { target, body }, afterMs, isDeaf, share }): Attack => {
    const text = JSON.stringify(body);
    const head = `POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n`;
    const bytes = Buffer.from(head + text);
    return {
      route: `POST ${target}`,
      label: `resets after ${afterMs} ms${isDeaf ? ", reading nothing" : ""}`,
      shown: `${share} ‰ of ${head}${text.slice(-300)}`,
      run: (wire) =>
        wire.play({
          requests: [{ method: "POST", target }],
          steps: [
            { kind: "write", bytes: bytes.subarray(0, (bytes.byteLength * share) / 1000) },
            { kind: "pause", ms: afterMs },
            { kind: "reset" },
          ],
          numDue: 0,
          isDeaf,
        }),
    };
  });

/** The same request with the same id, several times at once: each gets its own, equal answer. */
const duplicates = fc
  .record({
    target: fc.constantFrom("/v1/chat/completions", "/v1/completions"),
    count: fc.integer({ min: 2, max: 12 }),
    stream: fc.boolean(),
  })
  .map(({ target, count, stream }): Attack => {
    const fields = { max_tokens: 4, temperature: 0, stream };
    const body = target === "/v1/completions" ? { prompt: "a red", ...fields } : chat(fields);
    return {
      route: `POST ${target}`,
      label: `${count} times the same request`,
      shown: JSON.stringify(body).slice(-300),
      run: (wire) => askOften(wire, target, body, count),
    };
  });

async function askOften(wire: Wire, target: string, body: object, count: number): Promise<Answer[]> {
  const headers = { "x-request-id": randomUUID() };
  const answers = await Promise.all(Array.from({ length: count }, () => wire.sendJson(target, body, headers)));
  const texts = new Set(answers.map(({ text }) => textsOf(text)));
  if (texts.size > 1)
    throw new Error(`The same request has ${texts.size} answers: ${[...texts].join(" | ").slice(0, 300)}`);
  return answers;
}

/** The generated texts, without the parts that differ between answers. */
function textsOf(text: string): string {
  return [...text.matchAll(/"(?:content|text)":"((?:[^"\\]|\\.)*)"/g)].map(([, found]) => found).join("");
}

/** Clients that leave, reset, read nothing or repeat the same request. */
export const streams: AttackClass = {
  name: "streams",
  title: "Clients that leave, reset, read nothing or ask twice",
  numCases: 64,
  routes: ["POST /v1/chat/completions", "POST /v1/completions"],
  // Enough places that an ordinary request never waits for one.
  prepare: () => openSurroundings({ MAX_NUM_SEQS: "64", MAX_NUM_BATCHED_TOKENS: "1024" }),
  groupSize: 8,
  attacks: () =>
    fc.oneof(
      { weight: 3, arbitrary: leaving },
      { weight: 3, arbitrary: resetting },
      { weight: 1, arbitrary: duplicates },
    ),
};
