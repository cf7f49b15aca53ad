/**
 * The service under a mixed load for minutes or hours: pictures, streams, clients that disconnect, grammars and batches,
 * with Redis. Between phases of load it rests, and memory after a collection, sequences, handles and connections are
 * counted. What the last quarter has more of than the second is a leak.
 */
import { setTimeout as delay } from "node:timers/promises";
import sharp from "sharp";

import { collectGarbage } from "../../engine/runtime/collect-garbage.ts";
import { serve } from "../../functions/serve.ts";
import { startRedisServer } from "../support/servers/redis-server.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import { limitFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";

const NUM_SAMPLES = 24;
const NUM_CLIENTS = 12;
/** Longer than the engine's delay before it gives memory back, and than connections of clients stay open. */
const REST_MS = 6000;
const MAX_GROWTH = 1.01;
const PICTURE_SIZE = 64;
/** The tokenizer caches words, so that their number must not grow for hours. */
const NUM_PROMPTS = 200;
const MEBIBYTE = 2 ** 20;

interface Sample {
  readonly residentMiB: number;
  /** Heap and array buffers of the main thread. */
  readonly heapMiB: number;
  readonly sequences: number;
  readonly kvUsage: number;
  readonly handles: number;
  readonly redisConnections: number;
}

type Client = (send: Send, random: () => number) => Promise<void>;
type Send = (path: string, body: object, signal?: AbortSignal) => Promise<Response>;

/** @param minutes Of load and rests together. */
export async function benchSoak(minutes: number): Promise<Figure[]> {
  await using folder = await createTemporaryFolder();
  const redis = await startRedisServer();
  try {
    await using service = await serve({
      HOST: "127.0.0.1",
      PORT: 0,
      REDIS_URL: redis.url,
      BATCH_STORE: folder.path,
      MAX_NUM_SEQS: 8,
      MAX_MODEL_LEN: 1024,
      // Less than eight long sequences take, so that some are preempted.
      KV_CACHE_MEMORY_BYTES: "4MiB",
      // Full before the second quarter: a picture takes 50 KiB.
      MM_PROCESSOR_CACHE_GB: 0.001,
    });
    const engine = await service.ready;
    const url = `http://127.0.0.1:${service.port}`;
    const send: Send = (path, body, signal) =>
      fetch(`${url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        ...(signal && { signal }),
      });
    const random = randomNumbers(7);
    const numDone = new Map<string, number>();
    const samples: Sample[] = [];
    const phaseMs = Math.max(1000, (minutes * 60_000) / NUM_SAMPLES - REST_MS);
    for (let index = 0; index < NUM_SAMPLES; index++) {
      const endMs = performance.now() + phaseMs;
      const runClient = async (): Promise<void> => {
        while (performance.now() < endMs) {
          const [name, client] = clients[Math.floor(random() * clients.length)]!;
          await client(send, random);
          numDone.set(name, (numDone.get(name) ?? 0) + 1);
        }
      };
      await Promise.all([...Array.from({ length: NUM_CLIENTS }, runClient), runBatch(url, random)]);
      await delay(REST_MS);
      await collectGarbage();
      const { rss, heapUsed, external } = process.memoryUsage();
      const { numRequestsRunning, numRequestsWaiting, kvCacheUsage } = engine.stats;
      samples.push({
        residentMiB: rss / MEBIBYTE,
        heapMiB: (heapUsed + external) / MEBIBYTE,
        sequences: numRequestsRunning + numRequestsWaiting,
        kvUsage: kvCacheUsage,
        handles: process.getActiveResourcesInfo().length,
        redisConnections: redis.command("client", "list").trim().split("\n").length,
      });
      reportProgress(
        `${index + 1}/${NUM_SAMPLES}: ${describe(samples.at(-1)!)}, preempted ${engine.stats.numPreemptions}`,
      );
    }
    reportProgress([...numDone].map(([name, count]) => `${count} ${name}`).join(", "));
    return growths(samples);
  } finally {
    await redis.kill();
  }
}

/**
 * Of each value: the smallest of the last quarter over that of the second, because what a leak holds is never given back;
 * of sequences, what is left at the end.
 */
function growths(samples: readonly Sample[]): Figure[] {
  const quarter = NUM_SAMPLES / 4;
  const least = (part: readonly Sample[], key: keyof Sample): number => Math.min(...part.map((sample) => sample[key]));
  const growth = (name: string, key: keyof Sample): Figure => {
    const values = [least(samples.slice(-quarter), key) / least(samples.slice(quarter, 2 * quarter), key)];
    return limitFigure({ name, unit: "times", values, comparison: "<=", limit: MAX_GROWTH });
  };
  const left = (name: string, key: keyof Sample): Figure =>
    limitFigure({ name, unit: "", values: [samples.at(-1)![key]], comparison: "<=", limit: 0 });
  return [
    growth("resident memory", "residentMiB"),
    growth("heap and buffers", "heapMiB"),
    growth("handles", "handles"),
    growth("connections to Redis", "redisConnections"),
    left("sequences at rest", "sequences"),
    left("share of the KV cache at rest", "kvUsage"),
  ];
}

function describe(sample: Sample): string {
  return Object.entries(sample)
    .map(([name, value]) => `${name} ${Number(value.toFixed(1))}`)
    .join(", ");
}

const clients: readonly (readonly [string, Client])[] = [
  ["pictures", askAboutPicture],
  ["streams", readStream],
  ["disconnects", disconnect],
  ["grammars", askWithGrammar],
  ["long answers", askLong],
];

async function askAboutPicture(send: Send, random: () => number): Promise<void> {
  // Half of the pictures are new.
  const seed = random() < 0.5 ? Math.floor(random() * 20) : Math.floor(random() * 1e9);
  const pixels = Buffer.from(Array.from({ length: PICTURE_SIZE ** 2 * 3 }, (_, index) => (index * seed) % 251));
  const raw = { width: PICTURE_SIZE, height: PICTURE_SIZE, channels: 3 } as const;
  const png = await sharp(pixels, { raw }).png().toBuffer();
  const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${png.toString("base64")}` } };
  const content = [picture, { type: "text", text: "Describe the picture." }];
  await succeed(await send("/v1/chat/completions", { messages: [{ role: "user", content }], max_tokens: 32 }));
}

async function readStream(send: Send, random: () => number): Promise<void> {
  const prompt = `a red ${Math.floor(random() * NUM_PROMPTS)}`;
  await succeed(await send("/v1/completions", { prompt, max_tokens: 48, stream: true, temperature: 1 }));
}

async function disconnect(send: Send): Promise<void> {
  const controller = new AbortController();
  const body = { prompt: "a green", max_tokens: 500, ignore_eos: true, stream: true };
  const response = await send("/v1/completions", body, controller.signal);
  await response.body!.getReader().read();
  controller.abort();
}

async function askWithGrammar(send: Send, random: () => number): Promise<void> {
  const length = 1 + Math.floor(random() * 40);
  const structured = random() < 0.5 ? { regex: `[a-z]{1,${length}}` } : { json: schemaOf(length) };
  const messages = [{ role: "user", content: "Answer." }];
  await succeed(await send("/v1/chat/completions", { messages, max_tokens: 64, structured_outputs: structured }));
}

function schemaOf(maxLength: number): object {
  return { type: "object", properties: { name: { type: "string", maxLength } }, required: ["name"] };
}

async function askLong(send: Send, random: () => number): Promise<void> {
  const prompt = `a blue ${Math.floor(random() * NUM_PROMPTS)}`;
  await succeed(await send("/v1/completions", { prompt, max_tokens: 700, ignore_eos: true, seed: 1 }));
}

/** Eight requests in a file, from its upload until its results are read and deleted. */
async function runBatch(url: string, random: () => number): Promise<void> {
  const lines = Array.from({ length: 8 }, (_, index) => {
    const body = { model: "fovea-shapes", prompt: `a circle ${Math.floor(random() * NUM_PROMPTS)}`, max_tokens: 16 };
    return JSON.stringify({ custom_id: `${index}`, method: "POST", url: "/v1/completions", body });
  });
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob([lines.join("\n")]), "batch.jsonl");
  const file = (await (await ok(await fetch(`${url}/v1/files`, { method: "POST", body: form }))).json()) as {
    id: string;
  };
  const body = JSON.stringify({ input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h" });
  const headers = { "content-type": "application/json" };
  let batch = (await (await ok(await fetch(`${url}/v1/batches`, { method: "POST", headers, body }))).json()) as {
    id: string;
    status: string;
    output_file_id: string | null;
  };
  while (batch.status !== "completed") {
    if (batch.status === "failed") throw new Error(`The batch ${batch.id} failed.`);
    await delay(200);
    batch = (await (await ok(await fetch(`${url}/v1/batches/${batch.id}`))).json()) as typeof batch;
  }
  for (const id of [file.id, batch.output_file_id]) {
    await succeed(await fetch(`${url}/v1/files/${id}`, { method: "DELETE" }));
  }
}

async function ok(response: Response): Promise<Response> {
  if (!response.ok) throw new Error(`${response.url} answered ${response.status}: ${await response.text()}`);
  return response;
}

/** The machine was too busy to read a request's body in time. */
const REQUEST_TIMEOUT = 408;

async function succeed(response: Response): Promise<void> {
  if (response.status === REQUEST_TIMEOUT) {
    await response.arrayBuffer();
    return;
  }
  await (await ok(response)).arrayBuffer();
}

function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31;
}
