/** Loads of questions about pictures, half of which were asked about before, or beside streams of text: CLIP ViT-L/336 before a decoder of 135M. */
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import sharp from "sharp";

import { createDataUrlImageSource, createSamplingParams } from "../../../engine/index.ts";
import type { Engine } from "../../../engine/index.ts";
import { benchConfig, withEngineOf } from "../engine-throughput.ts";
import { benchFolder, engineOptions } from "../settings.ts";
import { shape } from "../shape.ts";
import { writeLlavaCheckpoint } from "../write-llava-checkpoint.ts";
import { createPrompts, runLoad, type Arrivals, type Load, type LoadFigures, type Send } from "./run-load.ts";

const photo = fileURLToPath(new URL("../../fixtures/goldens/pictures/photo.png", import.meta.url));
const imageLimits = { maxImagesPerPrompt: 1, maxImageBytes: 2 ** 24, maxImagePixels: 2 ** 24, fetchTimeoutMs: 5_000 };

/** 576 tokens of a picture and a few words in, `outputTokens` out; requests 0 and 1 show the same one, and so on. */
export function measurePictures(arrivals: Arrivals, outputTokens: number): Promise<LoadFigures> {
  return withPictureEngine((engine, jpeg) =>
    runLoad(arrivals, (number, onTokens) =>
      askAbout(engine, { number, picture: pictureOf(jpeg, number >> 1), outputTokens }, onTokens),
    ),
  );
}

/** Streams of text: alone, and while another client sends one new picture after the other. */
export interface StreamFigures {
  readonly alone: LoadFigures;
  readonly besidePictures: LoadFigures;
  /** Times to the first token about a picture, in milliseconds. */
  readonly picturesMs: readonly number[];
}

export function measureStreams(load: Load): Promise<StreamFigures> {
  return withPictureEngine(async (engine, jpeg) => {
    const nextPrompt = createPrompts(load.promptTokens, shape.vocabSize);
    let numStreams = 0;
    const stream: Send = async (_, onTokens) => {
      const request = {
        requestId: `stream-${numStreams++}`,
        prompt: { kind: "tokens" as const, tokenIds: nextPrompt() },
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: load.outputTokens, ignoreEos: true }),
      };
      for await (const output of engine.generate(request)) onTokens(output.tokenIds.length);
    };
    const alone = await runLoad(load, stream);
    const picturesMs: number[] = [];
    const streams = new AbortController();
    const sendPictures = async (): Promise<void> => {
      for (let number = 0; !streams.signal.aborted; number++) {
        const startMs = performance.now();
        await askAbout(engine, { number, picture: pictureOf(jpeg, number), outputTokens: 1 }, () => {});
        picturesMs.push(performance.now() - startMs);
      }
    };
    const pictures = sendPictures();
    const besidePictures = await runLoad(load, stream);
    streams.abort();
    await pictures;
    return { alone, besidePictures, picturesMs };
  });
}

/** Weights of 8 bits. */
async function withPictureEngine<Result>(work: (engine: Engine, jpeg: Uint8Array) => Promise<Result>): Promise<Result> {
  const model = writeLlavaCheckpoint(join(benchFolder, "llava-clip-l-336-random"));
  const config = { ...benchConfig({ ...engineOptions("int8"), model }), imageLimits };
  const jpeg = await sharp(photo).resize(1152, 864, { fit: "fill" }).jpeg({ quality: 90 }).toBuffer();
  return withEngineOf(config, (engine) => work(engine, jpeg), [createDataUrlImageSource()]);
}

interface Question {
  readonly number: number;
  /** As a data URL. */
  readonly picture: string;
  readonly outputTokens: number;
}

async function askAbout(
  engine: Engine,
  { number, picture, outputTokens }: Question,
  onTokens: (count: number) => void,
): Promise<void> {
  const request = {
    requestId: `pictures-${number}`,
    prompt: {
      kind: "chat" as const,
      addGenerationPrompt: true,
      messages: [
        {
          role: "user" as const,
          content: [
            { type: "text" as const, text: `Question ${number}. ` },
            { type: "image" as const, reference: picture },
            { type: "text" as const, text: "What is in the picture?" },
          ],
        },
      ],
    },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: outputTokens, ignoreEos: true }),
  };
  for await (const output of engine.generate(request)) onTokens(output.tokenIds.length);
}

/** Bytes after the end make it another picture; no decoder reads them. */
function pictureOf(jpeg: Uint8Array, picture: number): string {
  const marker = Buffer.alloc(4);
  marker.writeUInt32LE(picture);
  return `data:image/jpeg;base64,${Buffer.concat([jpeg, marker]).toString("base64")}`;
}
