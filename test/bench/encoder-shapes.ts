/** The real sizes of vision towers, laid over the configuration files of the hub that the tests have. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import type { TowerWork } from "./encoder-work.ts";

const fixtures = new URL("../fixtures/hub/", import.meta.url);

type Fields = Readonly<Record<string, unknown>>;

export interface EncoderFamily {
  readonly name: string;
  /** Contains its tokenizer.json. */
  readonly folder: string;
  readonly config: Fields;
  readonly preprocessorConfig: Fields;
  readonly work: TowerWork;
}

const clip336 = {
  hidden_size: 1024,
  intermediate_size: 4096,
  num_hidden_layers: 24,
  num_attention_heads: 16,
  patch_size: 14,
  image_size: 336,
};

const siglipOf = (imageSize: number): Fields & TowerSizes => ({
  hidden_size: 1152,
  intermediate_size: 4304,
  num_hidden_layers: 27,
  num_attention_heads: 16,
  patch_size: 14,
  image_size: imageSize,
});

const pixtralOf = (patchSize: number): Fields => ({ ...clip336, head_dim: 64, patch_size: patchSize });

/** Multiples of a tile on each side, 1 to 6, as [height, width]. */
const pinpoints = Array.from({ length: 36 }, (_, index) => [
  384 * (1 + Math.floor(index / 6)),
  384 * (1 + (index % 6)),
]);

/** As [height, width]. */
const nextPinpoints = [
  [336, 672],
  [672, 336],
  [672, 672],
  [1008, 336],
  [336, 1008],
];

const square = (side: number): Fields => ({ height: side, width: side });

/** A tower over square tiles. `classTokens` are tokens beside the patches. */
function tiledWork(
  { hidden_size: width, intermediate_size: intermediate, num_hidden_layers: numLayers }: TowerSizes,
  { side, patchSize, classTokens = 0, unusedLayers = 0 }: Tiling,
): TowerWork {
  const numPatches = Math.floor(side / patchSize) ** 2 + classTokens;
  return {
    numLayers: numLayers - unusedLayers,
    width,
    intermediate,
    perceptronMatrices: 2,
    tile: { numPixelValues: 3 * side ** 2, numPatches },
    patchValues: 0,
    windows: null,
  };
}

interface TowerSizes {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
}

interface Tiling {
  readonly side: number;
  readonly patchSize: number;
  readonly classTokens?: number;
  readonly unusedLayers?: number;
}

/** A tower over the patches of a picture in its own size. */
function patchWork(
  numLayers: number,
  width: number,
  intermediate: number,
  more: Pick<TowerWork, "perceptronMatrices" | "patchValues"> & Partial<TowerWork>,
): TowerWork {
  return { numLayers, width, intermediate, tile: null, windows: null, ...more };
}

interface Sizes {
  readonly folder: string;
  readonly work: TowerWork;
  /** Of config.json. */
  readonly config?: Fields;
  /** Of `vision_config`. */
  readonly vision: Fields;
  /** Of preprocessor_config.json. */
  readonly processor?: Fields;
}

/** The features are those of the last layer but one. */
const clipWork = tiledWork(clip336, { side: 336, patchSize: 14, classTokens: 1, unusedLayers: 1 });
const pixtralWork = (patchSize: number): TowerWork =>
  patchWork(24, 1024, 4096, { perceptronMatrices: 3, patchValues: 3 * patchSize ** 2 });
/** A still picture stands for two of a video. */
const qwenPatchValues = (patchSize: number): number => 3 * 2 * patchSize ** 2;
const smolTower = { hidden_size: 768, intermediate_size: 3072, num_hidden_layers: 12 };

const sizes: Readonly<Record<string, Sizes>> = {
  "LLaVA 1.5": {
    folder: "llava-1.5",
    work: clipWork,
    vision: clip336,
    processor: { size: { shortest_edge: 336 }, crop_size: square(336) },
  },
  "LLaVA-NeXT": {
    folder: "llava-next",
    config: { image_grid_pinpoints: nextPinpoints },
    work: clipWork,
    vision: clip336,
    processor: {
      size: { shortest_edge: 336 },
      crop_size: square(336),
      image_grid_pinpoints: nextPinpoints,
    },
  },
  "LLaVA-OneVision": {
    folder: "llava-onevision",
    work: tiledWork(siglipOf(384), { side: 384, patchSize: 14 }),
    config: { image_grid_pinpoints: pinpoints, vision_aspect_ratio: "anyres_max_9" },
    vision: siglipOf(384),
    processor: { size: square(384), image_grid_pinpoints: pinpoints },
  },
  "Qwen2-VL": {
    folder: "qwen2-vl",
    work: patchWork(32, 1280, 5120, { perceptronMatrices: 2, patchValues: qwenPatchValues(14) }),
    vision: { depth: 32, embed_dim: 1280, num_heads: 16, mlp_ratio: 4 },
  },
  "Qwen2.5-VL": {
    folder: "qwen2.5-vl",
    work: patchWork(32, 1280, 3420, {
      perceptronMatrices: 3,
      patchValues: qwenPatchValues(14),
      windows: { numLayers: 28, numPatches: 64 },
    }),
    vision: {
      depth: 32,
      hidden_size: 1280,
      intermediate_size: 3420,
      num_heads: 16,
      window_size: 112,
      fullatt_block_indexes: [7, 15, 23, 31],
    },
  },
  "Qwen3-VL": {
    folder: "qwen3-vl",
    work: patchWork(24, 1024, 4096, { perceptronMatrices: 2, patchValues: qwenPatchValues(16) }),
    vision: {
      depth: 24,
      hidden_size: 1024,
      intermediate_size: 4096,
      num_heads: 16,
      num_position_embeddings: 2304,
      // The decoder of the tests has three layers, of which two may get features; those of the hub get three.
      deepstack_visual_indexes: [5, 11],
    },
  },
  "Mistral 3": {
    folder: "mistral3",
    work: pixtralWork(14),
    vision: pixtralOf(14),
    processor: { size: { longest_edge: 1540 }, patch_size: square(14) },
  },
  Pixtral: {
    folder: "pixtral",
    work: pixtralWork(16),
    vision: pixtralOf(16),
    processor: { size: { longest_edge: 1024 }, patch_size: square(16) },
  },
  "Gemma 3": {
    folder: "gemma3",
    work: tiledWork(siglipOf(896), { side: 896, patchSize: 14 }),
    config: { mm_tokens_per_image: 256 },
    vision: siglipOf(896),
    processor: { size: square(896), image_seq_length: 256 },
  },
  InternVL3: {
    folder: "internvl3",
    work: tiledWork(clip336, { side: 448, patchSize: 14, classTokens: 1 }),
    config: { image_seq_length: 256 },
    vision: { ...clip336, image_size: [448, 448], patch_size: [14, 14] },
    processor: { size: square(448) },
  },
  SmolVLM2: {
    folder: "smolvlm2",
    work: tiledWork(smolTower, { side: 512, patchSize: 16 }),
    config: { scale_factor: 4 },
    vision: {
      ...smolTower,
      num_attention_heads: 12,
      patch_size: 16,
      image_size: 512,
    },
    processor: { size: { longest_edge: 2048 }, max_image_size: { longest_edge: 512 } },
  },
};

/** The first one is what the others are compared with. */
export function encoderFamilies(): EncoderFamily[] {
  return Object.entries(sizes).map(([name, { folder, work, config = {}, vision, processor = {} }]) => {
    const own = readFixture(folder, "config.json");
    return {
      name,
      work,
      folder: fileURLToPath(new URL(folder, fixtures)),
      config: { ...own, ...config, vision_config: { ...(own.vision_config as Fields), ...vision } },
      preprocessorConfig: { ...readFixture(folder, "preprocessor_config.json"), ...processor },
    };
  });
}

function readFixture(folder: string, file: string): Fields {
  return JSON.parse(readFileSync(new URL(`${folder}/v4/${file}`, fixtures), "utf8")) as Fields;
}
