/**
 * Time to the first token of a prompt with a picture: never seen, known to another replica over Redis, known to this
 * one; and of a prompt with as many tokens without one. For the shipped checkpoint, and for one with a tower of LLaVA's
 * size. Every prompt starts with its own words, so that none is reused. A picture is made new by bytes after its end,
 * which no decoder reads.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import sharp from "sharp";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import type { CacheConfig, DtypeName, Engine, Prompt } from "../../engine/index.ts";
import { createLogger } from "../../functions/logger.ts";
import { createRedisStore } from "../../functions/redis/redis-store.ts";
import { startRedisServer } from "../support/servers/redis-server.ts";
import { limitFigure, median, plainFigure, ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchFolder, numThreads } from "./settings.ts";
import { writeLlavaCheckpoint } from "./write-llava-checkpoint.ts";

interface Subject {
  readonly name: string;
  /** Writes the checkpoint if it is missing; returns its folder. */
  readonly checkpoint: () => string;
  readonly dtype: DtypeName;
  /** The bytes of an encoded picture. */
  readonly picture: () => Promise<Uint8Array>;
  /** Of each kind in a round, whose median counts. */
  readonly promptsPerRound: number;
}

const shapes = fileURLToPath(new URL("../../models/fovea-shapes/", import.meta.url));
const photo = fileURLToPath(new URL("../fixtures/goldens/pictures/photo.png", import.meta.url));

const subjects: readonly Subject[] = [
  {
    name: "fovea-shapes",
    checkpoint: () => shapes,
    dtype: "float32",
    picture: () => readFile(join(shapes, "examples", "scene.png")),
    promptsPerRound: 40,
  },
  {
    name: "CLIP ViT-L/336, 135M",
    checkpoint: () => writeLlavaCheckpoint(join(benchFolder, "llava-clip-l-336-random")),
    dtype: "int8",
    picture: () => sharp(photo).resize(1152, 864, { fit: "fill" }).jpeg({ quality: 90 }).toBuffer(),
    promptsPerRound: 6,
  },
];

const memoryHitTarget = 0.9;
const redisHitLimitMs = 15;

const caches: CacheConfig = {
  maxMemoryBytes: 2 ** 28,
  timeToLiveSeconds: 3_600,
  maxValueBytes: 2 ** 25,
  commandTimeoutMs: 1_000,
  keyPrefix: "bench",
};

async function startReplica({ checkpoint, dtype }: Subject, redisUrl: string): Promise<Engine> {
  const engine = createEngine(
    {
      model: checkpoint(),
      dtype,
      device: "cpu",
      deviceId: 0,
      maxModelLen: null,
      maxNumSequences: 4,
      maxNumBatchedTokens: 512,
      maxNumWaiting: 64,
      logitsProcessors: [],
      logitsProcessorPath: [],
      numThreads,
      cacheFolder: join(benchFolder, "cache"),
      imageLimits: { maxImagesPerPrompt: 4, maxImageBytes: 2 ** 24, maxImagePixels: 2 ** 24, fetchTimeoutMs: 5_000 },
      caches,
    },
    {
      imageSources: [createDataUrlImageSource()],
      createByteStore: async () => createRedisStore(redisUrl, createLogger({ level: "error", write: () => {} })),
    },
  );
  await engine.ready;
  return engine;
}

let numRequests = 0;

/** Milliseconds to the first token, and the tokens of the prompt. */
async function firstToken(
  engine: Engine,
  prompt: Prompt,
): Promise<{ readonly ms: number; readonly numTokens: number }> {
  const start = performance.now();
  const samplingParams = createSamplingParams({ temperature: 0, maxTokens: 1 });
  let numTokens = 0;
  for await (const output of engine.generate({ requestId: `${numRequests++}`, prompt, samplingParams })) {
    numTokens = output.numPromptTokens;
  }
  return { ms: performance.now() - start, numTokens };
}

const question = "How many shapes are there?";

function userSays(content: Extract<Prompt, { readonly kind: "chat" }>["messages"][number]["content"]): Prompt {
  return { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true };
}

function withPicture(reference: string): Prompt {
  return userSays([
    { type: "text", text: `Question ${numRequests}. ` },
    { type: "image", reference },
    { type: "text", text: question },
  ]);
}

function withWords(numWords: number): Prompt {
  return userSays(`Question ${numRequests}. ${"shapes ".repeat(numWords)}${question}`);
}

/** Words for a prompt with as many tokens as a picture, or slightly fewer if a word has several. */
async function wordsOfPicture(engine: Engine, picture: string): Promise<number> {
  const { numTokens } = await firstToken(engine, withPicture(picture));
  const withNone = (await firstToken(engine, withWords(0))).numTokens;
  const withOne = (await firstToken(engine, withWords(1))).numTokens;
  return Math.floor((numTokens - withNone) / (withOne - withNone));
}

/** Milliseconds. */
interface Round {
  readonly cold: number;
  readonly redis: number;
  readonly memory: number;
  readonly text: number;
  /** Additional time of a picture from Redis compared with the same picture from memory, right after. */
  readonly beyondMemory: number;
}

export async function benchImageCaches(rounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const subject of subjects) {
    const measured = await measureSubject(subject, rounds);
    figures.push(...figuresOf(subject.name, measured));
  }
  return figures;
}

async function measureSubject(subject: Subject, rounds: number): Promise<readonly Round[]> {
  const redis = await startRedisServer();
  const first = await startReplica(subject, redis.url);
  const second = await startReplica(subject, redis.url);
  try {
    const bytes = await subject.picture();
    let numPictures = 0;
    const newPicture = (): string => {
      const number = Buffer.alloc(4);
      number.writeUInt32LE(numPictures++);
      return `data:image/*;base64,${Buffer.concat([bytes, number]).toString("base64")}`;
    };
    const numWords = await wordsOfPicture(second, newPicture());
    const measureRound = async (): Promise<Round> => {
      const times: Round[] = [];
      for (let prompt = 0; prompt < subject.promptsPerRound; prompt++) {
        const picture = newPicture();
        const before = writtenBytes(first);
        const cold = await firstToken(first, withPicture(picture));
        while (writtenBytes(first).some((numBytes, cache) => numBytes === before[cache])) await nextTurn();
        // Idle for as long as the first one worked, its threads and its memory's caches would pay for waking up.
        await firstToken(second, withWords(numWords));
        const overRedis = await firstToken(second, withPicture(picture));
        const memory = await firstToken(second, withPicture(picture));
        const text = await firstToken(second, withWords(numWords));
        const beyondMemory = overRedis.ms - memory.ms;
        times.push({ cold: cold.ms, redis: overRedis.ms, memory: memory.ms, text: text.ms, beyondMemory });
      }
      const medianOf = (kind: keyof Round): number => median(times.map((time) => time[kind]));
      return {
        cold: medianOf("cold"),
        redis: medianOf("redis"),
        memory: medianOf("memory"),
        text: medianOf("text"),
        beyondMemory: medianOf("beyondMemory"),
      };
    };
    await measureRound(); // The first prompts pay for code that was never run.
    const measured: Round[] = [];
    for (let round = 0; round < rounds; round++) {
      const times = await measureRound();
      measured.push(times);
      const shown = Object.entries(times).map(([kind, ms]) => `${kind} ${ms.toFixed(2)} ms`);
      reportProgress(`${subject.name}, round ${round + 1} of ${rounds}: ${shown.join(", ")}`);
    }
    return measured;
  } finally {
    await Promise.all([first.close(), second.close()]);
    await redis.kill();
  }
}

function figuresOf(subject: string, rounds: readonly Round[]): Figure[] {
  const per = (value: number): number => 1_000 / value;
  const speed = (kind: keyof Round): number[] => rounds.map((round) => per(round[kind]));
  const unit = "1/s";
  return [
    ratioFigure({
      name: `${subject}: first tokens, picture in memory, against text of as many tokens`,
      unit,
      ours: speed("memory"),
      theirs: speed("text"),
      target: memoryHitTarget,
    }),
    limitFigure({
      name: `${subject}: first token, picture from Redis, beyond one from memory`,
      unit: "ms",
      values: rounds.map(({ beyondMemory }) => beyondMemory),
      comparison: "<=",
      limit: redisHitLimitMs,
    }),
    ratioFigure({
      name: `${subject}: first tokens, picture from Redis, against one never seen`,
      unit,
      ours: speed("redis"),
      theirs: speed("cold"),
      target: 1,
    }),
    plainFigure(
      `${subject}: first token, picture never seen`,
      "ms",
      rounds.map(({ cold }) => cold),
    ),
  ];
}

/** Bytes in Redis by this replica, of each of the two caches that a picture goes into. */
function writtenBytes({ caches: report }: Engine): number[] {
  const tiers = report?.tiers ?? [];
  return tiers
    .filter(({ cache, tier }) => tier === "redis" && cache !== "source")
    .map(({ stats }) => stats.writtenBytes);
}
