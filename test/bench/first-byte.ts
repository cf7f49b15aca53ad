/** Time to the first byte of a stream of Responses and of Messages, compared with that of chat completions. */
import { performance } from "node:perf_hooks";

import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess, untilReady } from "./server-process.ts";

/** Streams of each endpoint in a round, in turn. */
const numStreams = 100;
/** The endpoints differ only in how they read and write JSON. */
const target = 0.9;

const question = "Describe the picture.";
const endpoints = {
  chat: { path: "/v1/chat/completions", body: { messages: [{ role: "user", content: question }], max_tokens: 4 } },
  responses: { path: "/v1/responses", body: { input: question, max_output_tokens: 4 } },
  messages: { path: "/v1/messages", body: { messages: [{ role: "user", content: question }], max_tokens: 4 } },
} as const;
type Endpoint = keyof typeof endpoints;
const names: readonly Endpoint[] = ["chat", "responses", "messages"];

/** Milliseconds until the first byte of the body. */
async function firstByteMs(url: string, { path, body }: (typeof endpoints)[Endpoint]): Promise<number> {
  const start = performance.now();
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true }),
  });
  if (!response.ok || response.body === null) throw new Error(`${path} answered ${response.status}.`);
  const reader = response.body.getReader();
  await reader.read();
  const elapsed = performance.now() - start;
  while (!(await reader.read()).done);
  return elapsed;
}

/** Streams per second, as if each ended with its first byte. */
async function measureRound(url: string, count: number): Promise<Record<Endpoint, number>> {
  const elapsed = { chat: 0, responses: 0, messages: 0 };
  for (let index = 0; index < count; index++) {
    for (const name of names) elapsed[name] += await firstByteMs(url, endpoints[name]);
  }
  const rate = (name: Endpoint): number => (1000 * count) / elapsed[name];
  return { chat: rate("chat"), responses: rate("responses"), messages: rate("messages") };
}

export async function benchFirstByte(numRounds: number): Promise<Figure[]> {
  await using server = await startServerProcess({});
  await untilReady(server);
  await measureRound(server.url, numStreams); // Warms up.
  const rounds: Record<Endpoint, number>[] = [];
  for (let round = 0; round < numRounds; round++) {
    rounds.push(await measureRound(server.url, numStreams));
    reportProgress(`round ${round + 1} of ${numRounds}`);
  }
  const theirs = rounds.map(({ chat }) => chat);
  return (["responses", "messages"] as const).map((name) =>
    ratioFigure({
      name: `${endpoints[name].path} against chat completions`,
      unit: "first bytes/s",
      ours: rounds.map((round) => round[name]),
      theirs,
      target,
    }),
  );
}
