/** A load of questions about pictures, half of which were asked about before: CLIP ViT-L/336 before a decoder of 135M. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import sharp from "sharp";

import { createDataUrlImageSource, createSamplingParams } from "../../../engine/index.ts";
import type { Engine } from "../../../engine/index.ts";
import { benchConfig, withEngineOf } from "../engine-throughput.ts";
import { benchFolder, engineOptions } from "../settings.ts";
import { writeLlavaCheckpoint } from "../write-llava-checkpoint.ts";
import { runLoad, type Arrivals, type LoadFigures, type Send } from "./run-load.ts";

const photo = fileURLToPath(new URL("../../fixtures/goldens/pictures/photo.png", import.meta.url));
const imageLimits = { maxImagesPerPrompt: 1, maxImageBytes: 2 ** 24, maxImagePixels: 2 ** 24, fetchTimeoutMs: 5_000 };

/** 576 tokens of a picture and a few words in, `outputTokens` out. Weights of 8 bits. */
export async function measurePictures(arrivals: Arrivals, outputTokens: number): Promise<LoadFigures> {
  const model = writeLlavaCheckpoint(join(benchFolder, "llava-clip-l-336-random"));
  const config = { ...benchConfig({ ...engineOptions("int8"), model }), imageLimits };
  const jpeg = await sharp(photo).resize(1152, 864, { fit: "fill" }).jpeg({ quality: 90 }).toBuffer();
  const ask =
    (engine: Engine): Send =>
    async (number, onTokens) => {
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
                { type: "image" as const, reference: pictureOf(jpeg, number) },
                { type: "text" as const, text: "What is in the picture?" },
              ],
            },
          ],
        },
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: outputTokens, ignoreEos: true }),
      };
      for await (const output of engine.generate(request)) onTokens(output.tokenIds.length);
    };
  return withEngineOf(config, (engine) => runLoad(arrivals, ask(engine)), [createDataUrlImageSource()]);
}

/** Requests 0 and 1 show the same picture, and so on. Bytes after the end make it another one; no decoder reads them. */
function pictureOf(jpeg: Uint8Array, request: number): string {
  const marker = Buffer.alloc(4);
  marker.writeUInt32LE(request >> 1);
  return `data:image/jpeg;base64,${Buffer.concat([jpeg, marker]).toString("base64")}`;
}
