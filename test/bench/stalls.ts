/**
 * How long requests of each kind keep the HTTP thread from all others: the longest turn of its event loop. Turns are
 * counted in processor time of the thread, so that other programs change them little.
 */
import { randomBytes } from "node:crypto";
import sharp from "sharp";

import { freePort } from "../support/servers/free-port.ts";
import { limitFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess, untilReady } from "./server-process.ts";
import { InspectedIsolates } from "./soak/inspected-isolates.ts";

const MAX_TURN_MS = 50;
const NUM_REQUESTS = 7;
/** The first requests of a kind compile code. */
const NUM_WARM_UP = 2;
const MEBIBYTE = 2 ** 20;

const sentence = "the large red circle is left of a small blue star and ";
const megabyte = sentence.repeat(Math.ceil(1e6 / sentence.length));

type Kind = readonly [path: string, body: object];

export async function benchStalls(): Promise<Figure[]> {
  const inspectorPort = await freePort();
  await using server = await startServerProcess({ MAX_BODY_BYTES: String(64 * MEBIBYTE) }, [
    `--inspect=127.0.0.1:${inspectorPort}`,
  ]);
  await untilReady(server);
  using isolates = await InspectedIsolates.connect(inspectorPort);
  await isolates.evaluate(watchTurns);
  const figures: Figure[] = [];
  for (const [name, [path, body]] of Object.entries(await createKinds())) {
    const turns: number[] = [];
    for (let index = 0; index < NUM_WARM_UP + NUM_REQUESTS; index++) {
      await isolates.evaluate("longestTurnMs = 0");
      const response = await fetch(`${server.url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      await response.arrayBuffer();
      // Requests that are too long for the model are measured until they are rejected.
      if (response.status >= 500) throw new Error(`${name}: ${path} answered ${response.status}.`);
      turns.push((await isolates.evaluate("longestTurnMs")) as number);
    }
    const values = turns.slice(NUM_WARM_UP);
    reportProgress(`${name}: ${values.map((value) => value.toFixed(1)).join(" ")} ms`);
    const title = `longest turn of the HTTP thread: ${name}`;
    figures.push(limitFigure({ name: title, unit: "ms", values, comparison: "<=", limit: MAX_TURN_MS }));
  }
  return figures;
}

/** Runs in the service's main thread. Each turn of the event loop calls `setImmediate`'s callback once. */
const watchTurns = `(() => {
  globalThis.longestTurnMs = 0;
  let last = process.threadCpuUsage();
  const onTurn = () => {
    const { user, system } = process.threadCpuUsage(last);
    longestTurnMs = Math.max(longestTurnMs, (user + system) / 1000);
    last = process.threadCpuUsage();
    setImmediate(onTurn);
  };
  onTurn();
})()`;

async function createKinds(): Promise<Readonly<Record<string, Kind>>> {
  const large = await drawNoise(1000);
  const small = await drawNoise(440);
  const properties = Object.fromEntries(
    Array.from({ length: 2600 }, (_, index) => [
      `property_${index}`,
      { type: "string", enum: [`a${index}`, `b${index}`, `value number ${index}`] },
    ]),
  );
  const words = Array.from({ length: 64 }, (_, index) => `${index} `.repeat(100));
  return {
    "a short question": chat("Describe."),
    "a picture of 3 MB": chat([large, { type: "text", text: "Describe." }]),
    "a picture of 600 KB, parsed on the HTTP thread": chat([small, { type: "text", text: "Describe." }]),
    "eight pictures of 600 KB": chat([...Array.from({ length: 8 }, () => small), { type: "text", text: "Describe." }]),
    "a prompt of 100,000 characters": completion(megabyte.slice(0, 100_000)),
    "a prompt of 1 MB": completion(megabyte),
    "a prompt of 10 MB": completion(megabyte.repeat(10)),
    "100,000 token ids": completion(Array.from({ length: 100_000 }, (_, index) => 5 + (index % 50))),
    "1,001 messages": conversation(1001),
    "4,001 messages": conversation(4001),
    "a schema of 200 KB": chat("Describe.", { structured_outputs: { json: { type: "object", properties } } }),
    "64 stop strings": chat("Describe.", { stop: words, max_tokens: 64, ignore_eos: true }),
    "200 tokens with 20 logprobs": chat("Describe.", {
      logprobs: true,
      top_logprobs: 20,
      max_tokens: 200,
      ignore_eos: true,
      stream: true,
    }),
    "20 logprobs of 800 prompt tokens": completion(sentence.repeat(60), { prompt_logprobs: 20 }),
  };
}

function chat(content: unknown, fields: object = {}): Kind {
  return ["/v1/chat/completions", { messages: [{ role: "user", content }], max_tokens: 4, ...fields }];
}

function conversation(numMessages: number): Kind {
  const messages = Array.from({ length: numMessages }, (_, index) => ({
    role: index % 2 === 0 ? "user" : "assistant",
    content: `message ${index}`,
  }));
  return ["/v1/chat/completions", { messages, max_tokens: 4 }];
}

function completion(prompt: unknown, fields: object = { truncate_prompt_tokens: -1 }): Kind {
  return ["/v1/completions", { prompt, max_tokens: 4, ...fields }];
}

/** Noise, which compresses to almost its own size. */
async function drawNoise(size: number): Promise<object> {
  const raw = { width: size, height: size, channels: 3 } as const;
  const png = await sharp(randomBytes(size ** 2 * 3), { raw })
    .png()
    .toBuffer();
  return { type: "image_url", image_url: { url: `data:image/png;base64,${png.toString("base64")}` } };
}
