/** An input processor for a recorded checkpoint, with no graph built: all that stands between a request and the engine. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { createDataUrlImageSource } from "../../engine/images/data-url-image-source.ts";
import { createImageProcessor } from "../../engine/images/image-processor.ts";
import { InputProcessor } from "../../engine/input-processor.ts";
import { findModelDefinition } from "../../engine/models/registry.ts";
import { loadChatTemplate } from "../../engine/text/chat-template.ts";
import { loadTokenizer } from "../../engine/text/tokenizer.ts";
import { goldensFolder } from "../support/goldens.ts";
import type { ImageLimits } from "../../engine/config.ts";
import type { ImageSource } from "../../engine/images/image-source.ts";
import type { InputProcessorOptions } from "../../engine/input-processor.ts";

export const imageLimits: ImageLimits = {
  maxImagesPerPrompt: 3,
  maxImageBytes: 1_000_000,
  maxImagePixels: 1_000_000,
  fetchTimeoutMs: 5000,
};

export interface GoldenInputs extends AsyncDisposable {
  readonly inputProcessor: InputProcessor;
  readonly options: InputProcessorOptions;
}

export async function createGoldenInputs(
  name: "llava-default" | "llama",
  overrides: Partial<InputProcessorOptions> & { readonly sources?: readonly ImageSource[] } = {},
): Promise<GoldenInputs> {
  const folder = join(goldensFolder, name);
  const readJson = async (file: string) => JSON.parse(await readFile(join(folder, file), "utf8"));
  const config = await readJson("config.json");
  const definition = findModelDefinition(config);
  const model = definition.configure(config);
  const tokenizer = await loadTokenizer(folder);
  const { sources = [createDataUrlImageSource()], ...rest } = overrides;
  const takesImages = model.visionEncoder !== null && model.imageTokenId !== null && definition.createProcessor;
  const preprocessorConfig = takesImages ? (await readJson("processor_config.json")).image_processor : null;
  const imageInputs = takesImages
    ? {
        sources,
        pixels: createImageProcessor(preprocessorConfig, imageLimits),
        processor: takesImages({
          imageToken: tokenizer.token(model.imageTokenId) ?? "",
          imageTokenId: model.imageTokenId,
          visionEncoder: { path: "", ...model.visionEncoder },
          preprocessorConfig,
        }),
      }
    : null;
  const options: InputProcessorOptions = {
    tokenizer,
    chatTemplate: await loadChatTemplate(folder, tokenizer.namedTokens),
    imageInputs,
    imageLimits,
    maxModelLen: model.maxPositionEmbeddings,
    vocabSize: model.decoder.vocabSize,
    modelContentHash: name,
    ...rest,
  };
  return {
    inputProcessor: new InputProcessor(options),
    options,
    [Symbol.asyncDispose]: async () => imageInputs?.pixels.close(),
  };
}
