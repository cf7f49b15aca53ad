/**
 * A model of real size over HTTP, in int4: the start, the first token about a picture, and conversations that run
 * together, these also in process by node-llama-cpp with weights of q4_0. Writes the checkpoint of random weights first, 14 GB for LLaVA 1.5 7B's shape, and prepares its weights.
 */
import { join } from "node:path";
import sharp from "sharp";

import { comparedFigure, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { measureLlamaCppLoad, requirePeer } from "./peers.ts";
import { startServerProcess, untilReady } from "./server-process.ts";
import { benchFolder, numThreads } from "./settings.ts";
import { largeShapes, shape } from "./shape.ts";
import { writeGguf } from "./write-gguf.ts";
import { writeLlavaCheckpoint } from "./write-llava-checkpoint.ts";

const clientCounts = [1, 4, 16] as const;
const MAX_SEQUENCES = 16;
const PROMPT_TOKENS = 64;
const OUTPUT_TOKENS = 32;
const FIRST_ORDINARY_ID = 300;
const PICTURE_SIZE = 336;

export async function benchLarge(size: keyof typeof largeShapes, rounds: number): Promise<Figure[]> {
  requirePeer("node-llama-cpp");
  const gguf = join(benchFolder, `${size}-q4_0.gguf`);
  writeGguf(gguf, "q4_0", largeShapes[size]);
  const environment = {
    MODEL: writeLlavaCheckpoint(join(benchFolder, `llava-${size}-random`), largeShapes[size]),
    DTYPE: "int4",
    NUM_THREADS: String(numThreads),
    CACHE_FOLDER: join(benchFolder, "cache"),
    MAX_NUM_SEQS: String(MAX_SEQUENCES),
  };
  // Quantises the weights once.
  await using first = await startServerProcess(environment);
  await untilReady(first);
  await first[Symbol.asyncDispose]();
  const readySeconds: number[] = [];
  const pictureSeconds: number[] = [];
  const tokensPerSecond = clientCounts.map((): number[] => []);
  const ofLlamaCpp = clientCounts.map((): number[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const [index, clients] of clientCounts.entries()) {
      ofLlamaCpp[index]!.push(await measureLlamaCpp(gguf, clients));
      reportProgress(`${clients} together, llama.cpp: ${ofLlamaCpp[index]!.at(-1)!.toFixed(1)} tokens/s`);
    }
    await using server = await startServerProcess(environment);
    await untilReady(server);
    readySeconds.push((performance.now() - server.startedAt) / 1000);
    pictureSeconds.push(await secondsToPicture(server.url, round));
    reportProgress(`ready ${readySeconds.at(-1)!.toFixed(1)} s, picture ${pictureSeconds.at(-1)!.toFixed(1)} s`);
    for (const [index, clients] of clientCounts.entries()) {
      tokensPerSecond[index]!.push(await measureTogether(server.url, clients, round));
      reportProgress(`${clients} together: ${tokensPerSecond[index]!.at(-1)!.toFixed(1)} tokens/s`);
    }
  }
  return [
    plainFigure(`${size}: process start to ready`, "s", readySeconds),
    plainFigure(`${size}: first token about a new picture`, "s", pictureSeconds),
    ...clientCounts.map((clients, index) =>
      comparedFigure(
        `${size}: output of ${clients} conversations, against llama.cpp`,
        "tok/s",
        tokensPerSecond[index]!,
        ofLlamaCpp[index]!,
      ),
    ),
  ];
}

async function secondsToPicture(url: string, round: number): Promise<number> {
  const background = { r: 40 * round, g: 90, b: 200 };
  const create = { width: PICTURE_SIZE, height: PICTURE_SIZE, channels: 3, background } as const;
  const png = await sharp({ create }).png().toBuffer();
  const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${png.toString("base64")}` } };
  const content = [picture, { type: "text", text: "Describe it." }];
  const start = performance.now();
  await post(`${url}/v1/chat/completions`, { messages: [{ role: "user", content }], max_tokens: 1 });
  return (performance.now() - start) / 1000;
}

async function measureLlamaCpp(gguf: string, clients: number): Promise<number> {
  const load = { name: "", promptTokens: PROMPT_TOKENS, outputTokens: OUTPUT_TOKENS, clients, requests: clients };
  const figures = await measureLlamaCppLoad(gguf, { ...load, threads: numThreads, vocabSize: shape.vocabSize });
  return figures.outputTokensPerSecond;
}

/** Tokens of all answers for a second, prompts included in the time. */
async function measureTogether(url: string, clients: number, round: number): Promise<number> {
  const start = performance.now();
  await Promise.all(
    Array.from({ length: clients }, (_, client) => {
      const first = FIRST_ORDINARY_ID + 1000 * (clients + round) + 100 * client;
      const prompt = Array.from({ length: PROMPT_TOKENS }, (_, place) => first + place);
      return post(`${url}/v1/completions`, { prompt, max_tokens: OUTPUT_TOKENS, ignore_eos: true, temperature: 0 });
    }),
  );
  return (1000 * clients * OUTPUT_TOKENS) / (performance.now() - start);
}

async function post(url: string, body: object): Promise<void> {
  const headers = { "content-type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${url} answered ${response.status}: ${await response.text()}`);
  await response.arrayBuffer();
}
