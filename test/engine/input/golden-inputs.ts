/** An input processor for a recorded checkpoint, without graphs: everything between a request and the engine. */
import { readFile } from "node:fs/promises";
import { join, relative } from "node:path";

import type { EngineConfig, ImageLimits } from "../../../engine/contract/config.ts";
import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import type { ImageSource } from "../../../engine/images/image-source.ts";
import { InputProcessor } from "../../../engine/input/input-processor.ts";
import type { InputProcessorOptions } from "../../../engine/input/input-processor.ts";
import type { ItemCaches } from "../../../engine/input/item-loader.ts";
import { createImageInputs } from "../../../engine/input/multimodal-inputs.ts";
import type { LoadedImageInputs } from "../../../engine/input/multimodal-inputs.ts";
import type { ModelDefinition } from "../../../engine/models/model-definition.ts";
import { loadChatTemplate } from "../../../engine/text/chat-template.ts";
import { loadTokenizer } from "../../../engine/text/tokenizer.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { findModelDefinition } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

export const imageLimits: ImageLimits = {
  maxImagesPerPrompt: 3,
  maxImageBytes: 1_000_000,
  maxImagePixels: 1_000_000,
  fetchTimeoutMs: 5000,
};

export interface GoldenOverrides extends Partial<InputProcessorOptions> {
  readonly sources?: readonly ImageSource[];
  readonly caches?: ItemCaches;
  /** Default: that of the architecture. */
  readonly definition?: ModelDefinition;
  readonly settings?: Partial<
    Pick<EngineConfig, "imageLimits" | "videoLimits" | "documentLimits" | "enableMmEmbeds" | "mmProcessorOptions">
  >;
}

export interface GoldenInputs extends AsyncDisposable {
  readonly inputProcessor: InputProcessor;
  readonly options: InputProcessorOptions;
  readonly imageInputs: LoadedImageInputs | null;
}

/** @param name Name of a folder below `test/fixtures/goldens/`. */
export async function createGoldenInputs(name: string, overrides: GoldenOverrides = {}): Promise<GoldenInputs> {
  const folder = join(goldensFolder, name);
  const readJson = async (file: string) => JSON.parse(await readFile(join(folder, file), "utf8"));
  const config = await readJson("config.json");
  const { definition = findModelDefinition(config) } = overrides;
  const model = definition.configure(config);
  const tokenizer = await loadTokenizer(folder);
  const { sources = [createDataUrlImageSource()], settings, caches, ...rest } = overrides;
  const imageInputs = createImageInputs(
    { imageLimits, ...settings },
    {
      definition,
      model: {
        ...model,
        contentHash: name,
      },
      tokenizer,
      preprocessorConfig: model.visionEncoder === null ? null : await readPreprocessorConfig(folder),
      imageSources: sources,
      ...(caches && { caches }),
    },
  );
  const options: InputProcessorOptions = {
    tokenizer,
    chatTemplate: await loadChatTemplate(folder, tokenizer.namedTokens, {
      familyTemplate: definition.chatTemplate,
      spellsImages: definition.spellsImages,
    }),
    imageInputs,
    imageLimits,
    maxModelLen: model.maxPositionEmbeddings,
    vocabSize: model.decoder.vocabSize,
    ...rest,
  };
  return {
    inputProcessor: new InputProcessor(options),
    options,
    imageInputs,
    [Symbol.asyncDispose]: async () => imageInputs?.[Symbol.asyncDispose](),
  };
}

/** Of a folder below `test/fixtures/hub/`, with the files of transformers 5. */
export async function createHubInputs(name: string, overrides: GoldenOverrides = {}): Promise<GoldenInputs> {
  const folder = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v5", folder.path);
  const inputs = await createGoldenInputs(relative(goldensFolder, folder.path), overrides);
  return {
    ...inputs,
    async [Symbol.asyncDispose]() {
      await inputs[Symbol.asyncDispose]();
      await folder[Symbol.asyncDispose]();
    },
  };
}

async function readPreprocessorConfig(folder: string): Promise<unknown> {
  const own = await readFile(join(folder, "preprocessor_config.json"), "utf8").catch(() => null);
  if (own !== null) return JSON.parse(own);
  return JSON.parse(await readFile(join(folder, "processor_config.json"), "utf8")).image_processor ?? null;
}
