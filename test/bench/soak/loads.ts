/** The kinds of requests that the soak sends, each with choices from a generator of its own, so that runs are alike. */
import { setTimeout as delay } from "node:timers/promises";
import sharp from "sharp";

import { createRandom, randomBelow } from "../../gpu/numbers.ts";

const PICTURE_SIZE = 64;
/** Its data URL has over 1 MiB, so that the service parses the body on a separate thread. */
const LARGE_PICTURE_SIZE = 640;
const NUM_LARGE_PICTURES = 4;
/** Few, because every kind of cache should be full after the warm-up. */
const NUM_PROMPTS = 200;
const NUM_REPEATED_PICTURES = 20;
const MAX_GRAMMAR_LENGTH = 40;
/** As many grammars as the engine keeps without requests. */
const NUM_LAST_GRAMMARS = 8;
const BATCH_LINES = 8;
const BATCH_POLL_MS = 100;
/** The machine was too busy to read a request's body in time. */
const REQUEST_TIMEOUT = 408;

type Random = () => number;
type Load = (url: string, random: Random) => Promise<void>;

/** Each sends one request, or the requests of one batch, and resolves when its answer has been read. */
export const loads = {
  texts: readStream,
  pictures: askAboutPicture,
  "large bodies": askAboutLargePicture,
  disconnects: disconnect,
  grammars: askWithGrammar,
  "long answers": askLong,
  batches: runBatch,
} satisfies Record<string, Load>;

export type LoadName = keyof typeof loads;
export const loadNames = Object.keys(loads) as readonly LoadName[];

/**
 * The last requests before a rest, one after the other and the same each time, so that caches of the most recent things
 * hold the same at every rest.
 */
export async function sendLastRequests(url: string): Promise<void> {
  for (let maxLength = 1; maxLength <= NUM_LAST_GRAMMARS; maxLength++) {
    await askWithin(url, { regex: `[0-9]{1,${maxLength}}` }, { seed: 1 });
  }
}

async function readStream(url: string, random: Random): Promise<void> {
  const prompt = `a red ${randomBelow(random, NUM_PROMPTS)}`;
  await ask(`${url}/v1/completions`, { prompt, max_tokens: 48, stream: true, temperature: 1 });
}

async function askAboutPicture(url: string, random: Random): Promise<void> {
  // Half of the pictures are new.
  const seed = randomBelow(random, random() < 0.5 ? NUM_REPEATED_PICTURES : 1e9);
  const pixels = Buffer.from(Array.from({ length: PICTURE_SIZE ** 2 * 3 }, (_, index) => (index * seed) % 251));
  await askAbout(url, await toPng(pixels, PICTURE_SIZE));
}

const largePictures = new Map<number, Promise<Buffer>>();

async function askAboutLargePicture(url: string, random: Random): Promise<void> {
  const seed = randomBelow(random, NUM_LARGE_PICTURES);
  const picture = largePictures.get(seed) ?? drawNoise(seed);
  largePictures.set(seed, picture);
  await askAbout(url, await picture);
}

/** Noise, which compresses to almost its own size. */
async function drawNoise(seed: number): Promise<Buffer> {
  const random = createRandom(seed);
  const pixels = Buffer.from(Array.from({ length: LARGE_PICTURE_SIZE ** 2 * 3 }, () => randomBelow(random, 256)));
  return toPng(pixels, LARGE_PICTURE_SIZE);
}

function toPng(pixels: Buffer, size: number): Promise<Buffer> {
  return sharp(pixels, { raw: { width: size, height: size, channels: 3 } })
    .png()
    .toBuffer();
}

async function askAbout(url: string, png: Buffer): Promise<void> {
  const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${png.toString("base64")}` } };
  const content = [picture, { type: "text", text: "Describe the picture." }];
  await ask(`${url}/v1/chat/completions`, { messages: [{ role: "user", content }], max_tokens: 32 });
}

/** Reads the first bytes of a stream and leaves. */
async function disconnect(url: string, random: Random): Promise<void> {
  const controller = new AbortController();
  const prompt = `a green ${randomBelow(random, NUM_PROMPTS)}`;
  const body = { prompt, max_tokens: 500, ignore_eos: true, stream: true };
  const response = await post(`${url}/v1/completions`, body, controller.signal);
  await response.body!.getReader().read();
  controller.abort();
}

async function askWithGrammar(url: string, random: Random): Promise<void> {
  const maxLength = 1 + randomBelow(random, MAX_GRAMMAR_LENGTH);
  const schema = { type: "object", properties: { name: { type: "string", maxLength } }, required: ["name"] };
  await askWithin(url, random() < 0.5 ? { regex: `[a-z]{1,${maxLength}}` } : { json: schema });
}

async function askWithin(url: string, structured: object, sampling: object = {}): Promise<void> {
  const messages = [{ role: "user", content: "Answer." }];
  await ask(`${url}/v1/chat/completions`, { messages, max_tokens: 64, structured_outputs: structured, ...sampling });
}

async function askLong(url: string, random: Random): Promise<void> {
  const prompt = `a blue ${randomBelow(random, NUM_PROMPTS)}`;
  await ask(`${url}/v1/completions`, { prompt, max_tokens: 700, ignore_eos: true, seed: 1 });
}

interface Batch {
  readonly id: string;
  readonly status: string;
  readonly output_file_id: string | null;
}

/** A file of requests, from its upload until its results are read and deleted. */
async function runBatch(url: string, random: Random): Promise<void> {
  const lines = Array.from({ length: BATCH_LINES }, (_, index) => {
    const body = { model: "fovea-shapes", prompt: `a circle ${randomBelow(random, NUM_PROMPTS)}`, max_tokens: 16 };
    return JSON.stringify({ custom_id: `${index}`, method: "POST", url: "/v1/completions", body });
  });
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob([lines.join("\n")]), "batch.jsonl");
  const file = await readJson<{ readonly id: string }>(await fetch(`${url}/v1/files`, { method: "POST", body: form }));
  const creation = { input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h" };
  let batch = await readJson<Batch>(await post(`${url}/v1/batches`, creation));
  while (batch.status !== "completed") {
    if (batch.status === "failed") throw new Error(`The batch ${batch.id} failed.`);
    await delay(BATCH_POLL_MS);
    batch = await readJson<Batch>(await fetch(`${url}/v1/batches/${batch.id}`));
  }
  const results = await requireOk(await fetch(`${url}/v1/files/${batch.output_file_id}/content`));
  await results.arrayBuffer();
  for (const id of [file.id, batch.output_file_id]) {
    await readJson(await fetch(`${url}/v1/files/${id}`, { method: "DELETE" }));
  }
}

async function ask(url: string, body: object): Promise<void> {
  const response = await post(url, body);
  if (response.status !== REQUEST_TIMEOUT) await requireOk(response);
  await response.arrayBuffer();
}

function post(url: string, body: object, signal?: AbortSignal): Promise<Response> {
  const headers = { "content-type": "application/json" };
  return fetch(url, { method: "POST", headers, body: JSON.stringify(body), ...(signal && { signal }) });
}

async function readJson<T>(response: Response): Promise<T> {
  return (await (await requireOk(response)).json()) as T;
}

async function requireOk(response: Response): Promise<Response> {
  if (response.ok) return response;
  throw new Error(`${response.url} answered ${response.status}: ${await response.text()}`);
}
