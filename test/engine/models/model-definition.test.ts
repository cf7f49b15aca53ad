import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { ModelDefinition } from "../../../engine/models/model-definition.ts";
import type { ImageSize } from "../../../engine/multimodal/processing-info.ts";
import { testModelDefinition } from "../../contracts/model-definition.ts";
import type { ModelDefinitionFixture } from "../../contracts/model-definition.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { findModelDefinition } from "../../support/engine/shipped-models.ts";
import { createGoldenInputs, createHubInputs, type GoldenInputs } from "../input/golden-inputs.ts";

/** Sizes at which each model's processor changes its behaviour. */
const checkpoints: readonly {
  readonly name: string;
  /** Whether it is in `test/fixtures/hub/`. */
  readonly isOfHub?: boolean;
  readonly sizes: readonly ImageSize[];
  readonly isTaken?: (size: ImageSize) => boolean;
}[] = [
  { name: "llava-default", sizes: [{ width: 32, height: 32 }] },
  { name: "llava-full", sizes: [{ width: 33, height: 32 }] },
  { name: "llava-siglip", sizes: [{ width: 26, height: 27 }] },
  {
    name: "smolvlm",
    sizes: [
      { width: 72, height: 24 },
      { width: 72, height: 25 },
    ],
  },
  {
    name: "fuyu",
    // Up to 60 x 48 in patches of 6: exactly one patch, the target itself, larger in one direction only.
    sizes: [
      { width: 6, height: 6 },
      { width: 60, height: 48 },
      { width: 61, height: 48 },
      { width: 61, height: 5 },
      { width: 5, height: 49 },
      { width: 7, height: 48 },
    ],
  },
  {
    name: "qwen2-vl",
    // Squares of 12, from 4 to 16 of them.
    sizes: [
      { width: 24, height: 24 },
      { width: 30, height: 18 },
      { width: 48, height: 48 },
      { width: 49, height: 48 },
    ],
    isTaken: ({ width, height }) => Math.max(width, height) <= 200 * Math.min(width, height),
  },
  {
    name: "pixtral",
    isOfHub: true,
    // Patches of 16 in at most 160 x 160: exactly one patch, one more column, the limit, and above it.
    sizes: [
      { width: 16, height: 16 },
      { width: 17, height: 16 },
      { width: 160, height: 160 },
      { width: 161, height: 160 },
    ],
  },
  {
    name: "mistral3",
    isOfHub: true,
    // Squares of 8 in at most 280 x 280.
    sizes: [
      { width: 8, height: 9 },
      { width: 280, height: 280 },
      { width: 281, height: 279 },
    ],
  },
  {
    name: "lighton-ocr",
    isOfHub: true,
    // Patches of 4 in at most 260 x 260, and squares of two: less than a square, one more patch, and a strip.
    sizes: [
      { width: 3, height: 4 },
      { width: 9, height: 8 },
      { width: 260, height: 260 },
      { width: 300, height: 20 },
    ],
  },
  {
    name: "llava-next",
    isOfHub: true,
    // Tiles of 28: exactly one resolution, one more pixel, and pictures that leave a border of features.
    sizes: [
      { width: 56, height: 28 },
      { width: 57, height: 28 },
      { width: 84, height: 28 },
      { width: 60, height: 33 },
    ],
  },
  {
    name: "llava-onevision",
    isOfHub: true,
    // Tiles of 30: the smallest resolution, the largest that is not scaled, and one that is.
    sizes: [
      { width: 30, height: 30 },
      { width: 90, height: 30 },
      { width: 60, height: 61 },
      { width: 90, height: 90 },
    ],
  },
  {
    name: "internvl3",
    isOfHub: true,
    // Tiles of 28: one tile, two with the whole picture, and a shape with several equally good grids.
    sizes: [
      { width: 28, height: 28 },
      { width: 56, height: 28 },
      { width: 200, height: 100 },
    ],
  },
  {
    name: "molmo2",
    isOfHub: true,
    // Windows of 12 and margins of 8: one crop, two, and a picture within the margins.
    sizes: [
      { width: 20, height: 20 },
      { width: 32, height: 20 },
      { width: 3, height: 7 },
    ],
  },
  {
    name: "granite-for-docling",
    isOfHub: true,
    // Tiles of 32: one tile, two with the whole page, and a shape with several equally good grids.
    sizes: [
      { width: 32, height: 32 },
      { width: 64, height: 32 },
      { width: 240, height: 120 },
    ],
  },
  {
    name: "glm-ocr",
    isOfHub: true,
    // Squares of 28, from 8 to 32 of them; smaller pictures are enlarged first.
    sizes: [
      { width: 28, height: 27 },
      { width: 56, height: 112 },
      { width: 5, height: 90 },
      { width: 225, height: 113 },
    ],
    isTaken: ({ width, height }) => Math.max(width, height) <= 200 * Math.min(width, height),
  },
  {
    name: "lfm2-vl",
    isOfHub: true,
    // Squares of 8, from 4 to 16 of them, and tiles of 24 for pictures of more than 64: enlarged, exactly as large, scaled
    // down, cut, and as elongated as a picture may be.
    sizes: [
      { width: 9, height: 7 },
      { width: 32, height: 32 },
      { width: 64, height: 64 },
      { width: 65, height: 68 },
      { width: 160, height: 10 },
    ],
    isTaken: ({ width, height }) => Math.max(width, height) <= 16 * Math.min(width, height),
  },
  {
    name: "paddleocr-vl",
    isOfHub: true,
    // Squares of 28, from 9 to 48 of them; smaller pictures are enlarged first, one side after the other.
    sizes: [
      { width: 28, height: 27 },
      { width: 56, height: 112 },
      { width: 90, height: 5 },
      { width: 225, height: 169 },
    ],
    isTaken: ({ width, height }) => Math.max(width, height) <= 200 * Math.min(width, height),
  },
  {
    name: "dots-ocr",
    isOfHub: true,
    // Squares of 28, from 4 to 48 of them.
    sizes: [
      { width: 28, height: 27 },
      { width: 56, height: 56 },
      { width: 90, height: 5 },
      { width: 225, height: 169 },
    ],
    isTaken: ({ width, height }) => Math.max(width, height) <= 200 * Math.min(width, height),
  },
  {
    name: "hunyuan-ocr",
    isOfHub: true,
    // Squares of 32, from 6 to 40 of them.
    sizes: [
      { width: 32, height: 31 },
      { width: 96, height: 64 },
      { width: 90, height: 5 },
      { width: 5, height: 900 },
      { width: 257, height: 161 },
    ],
    isTaken: ({ width, height }) => Math.max(width, height) <= 200 * Math.min(width, height),
  },
  {
    name: "deepseek-ocr",
    isOfHub: true,
    // Tiles of 40: a whole picture only, two tiles, a shape with several equally good grids, and a column of six.
    sizes: [
      { width: 40, height: 40 },
      { width: 41, height: 40 },
      { width: 200, height: 100 },
      { width: 40, height: 240 },
    ],
  },
  {
    name: "deepseek-ocr-2",
    isOfHub: true,
    // Tiles of 96.
    sizes: [
      { width: 96, height: 96 },
      { width: 96, height: 97 },
    ],
  },
  {
    name: "granite4-vision",
    isOfHub: true,
    // Tiles of 32.
    sizes: [
      { width: 32, height: 32 },
      { width: 64, height: 64 },
      { width: 640, height: 64 },
    ],
  },
  {
    name: "got-ocr-2",
    isOfHub: true,
    // Pictures are not cut unless a request asks for it.
    sizes: [
      { width: 64, height: 64 },
      { width: 640, height: 64 },
    ],
  },
  ...["gemma4", "gemma4-12b"].map((name) => ({
    name,
    isOfHub: true,
    // Squares of 12, at most 70 of them: pictures with a single row, with exactly all squares, and larger than them.
    sizes: [
      { width: 71, height: 1 },
      { width: 1, height: 71 },
      { width: 120, height: 84 },
      { width: 121, height: 84 },
      { width: 240, height: 168 },
    ],
  })),
  ...["minicpm-v-4.6", "minicpm-v-4.7", "minicpm-ocr"].map((name) => ({
    name,
    isOfHub: true,
    // Squares of 16 or 8, and slices of about 32 x 32: a picture that is just not cut, one that is, and the most slices.
    sizes: [
      { width: 32, height: 32 },
      { width: 33, height: 32 },
      { width: 96, height: 96 },
      { width: 200, height: 1 },
      { width: 10, height: 900 },
    ],
    isTaken: ({ width, height }: ImageSize) => Math.max(width, height) <= 200 * Math.min(width, height),
  })),
];

for (const { name, isOfHub = false, sizes, isTaken } of checkpoints) {
  const folder = isOfHub ? `../hub/${name}/v5` : name;
  const config: unknown = JSON.parse(readFileSync(join(goldensFolder, folder, "config.json"), "utf8"));
  const definition = findModelDefinition(config);
  const createFixtureOf = isOfHub ? createHubFixture : createFixture;
  testModelDefinition(name, definition, () => createFixtureOf(name, definition, config), sizes, isTaken);
}

async function createHubFixture(
  name: string,
  definition: ModelDefinition,
  config: unknown,
): Promise<ModelDefinitionFixture> {
  return toFixture(name, definition, config, await createHubInputs(name));
}

async function createFixture(
  name: string,
  definition: ModelDefinition,
  config: unknown,
): Promise<ModelDefinitionFixture> {
  return toFixture(name, definition, config, await createGoldenInputs(name));
}

function toFixture(
  name: string,
  definition: ModelDefinition,
  config: unknown,
  inputs: GoldenInputs,
): ModelDefinitionFixture {
  const { visionEncoder } = definition.configure(config);
  if (inputs.imageInputs === null || visionEncoder === null) throw new Error(`${name} takes no images`);
  return {
    imageInputs: inputs.imageInputs,
    inputProcessor: inputs.inputProcessor,
    tokenizer: inputs.options.tokenizer,
    encoderInputs: visionEncoder.inputs,
    [Symbol.asyncDispose]: () => inputs[Symbol.asyncDispose](),
  };
}
