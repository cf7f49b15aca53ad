/** preprocessor_config.json of LLaVA-NeXT and LLaVA-OneVision. */
import { z } from "zod";

import type { ProcessorOptions } from "../../multimodal/multimodal-processor.ts";
import type { PixelTools } from "../../multimodal/pixel-program.ts";
import {
  always,
  clipScalingFields,
  edge,
  filter,
  flag,
  integer,
  invalidOption,
  parseProcessorOptions,
  scalingOf,
} from "../../multimodal/processor-options.ts";

/** Tiles of one picture: four times those of LLaVA-OneVision's largest resolution. */
const MAX_TILES = 144;
/** Resolutions to choose from; LLaVA-OneVision has 36. */
const MAX_RESOLUTIONS = 256;

const square = z.strictObject({ height: edge, width: edge });
const squareShape = 'an object such as {"height": 336, "width": 336}';

const resolutions = z
  .array(z.tuple([edge, edge]), "a list of resolutions such as [336, 672], height and width")
  .min(1, "a list of at least one resolution")
  .max(MAX_RESOLUTIONS, `a list of at most ${MAX_RESOLUTIONS} resolutions`);

const imageOptions = z.object({
  ...clipScalingFields,
  do_resize: always("this model always resizes pictures to tiles").default(true),
  resample: filter.default("bicubic"),
  size: z
    .union([square, z.strictObject({ shortest_edge: edge })], `${squareShape} or {"shortest_edge": 336}`)
    .optional(),
  default_to_square: flag.default(false),
  // Tiles already have this size, so nothing is cut.
  do_center_crop: flag.optional(),
  crop_size: z.union([edge, square], `an integer or ${squareShape}`).optional(),
  // Pads pictures of one batch to the same number of tiles. Here each picture is processed alone.
  do_pad: flag.default(true),
  aspect_ratio_setting: z.literal("anyres", '"anyres"').optional(),
  image_grid_pinpoints: resolutions.optional(),
  /** From config.json, see `anyresImageOptions`. */
  model_grid_pinpoints: resolutions,
  default_tile_size: edge,
  crops_tiles: flag.default(false),
  features_per_side: integer(1, 1024),
  most_tiles: integer(1, MAX_TILES).optional(),
  /** Whether several pictures of one prompt are shown as one tile each, instead of one picture in many tiles. */
  has_single_tiles: flag.default(false),
  /** Set for a frame of a video: whether the embedding that ends a video comes after its own. */
  video_frame: z.enum(["inner", "last"]).optional(),
});

/** The embeddings of a frame are scaled down by this factor on each side. */
const FRAME_SCALE = 2;

/** height and width in pixels. */
export type Resolution = readonly [height: number, width: number];

/** The options that config.json determines. */
export interface AnyresModelOptions {
  readonly resolutions: readonly Resolution[];
  /** If the image processor's file does not say: side of a tile in pixels, and whether tiles are cut to a size. */
  readonly processorDefaults: { readonly tileSize: number; readonly cropsTiles: boolean };
  /** Embeddings of a tile, per side. */
  readonly featuresPerSide: number;
  /** The tiles of a larger picture are scaled down to about as many embeddings as this number has; null: never. */
  readonly mostTiles: number | null;
}

/** As the schema above reads it. */
export function anyresImageOptions(model: AnyresModelOptions): ProcessorOptions {
  return {
    model_grid_pinpoints: model.resolutions,
    default_tile_size: model.processorDefaults.tileSize,
    crops_tiles: model.processorDefaults.cropsTiles,
    features_per_side: model.featuresPerSide,
    most_tiles: model.mostTiles,
  };
}

export interface AnyresOptions {
  /** Side of a tile, in pixels. */
  readonly tile: number;
  readonly resolutions: readonly Resolution[];
  readonly featuresPerSide: number;
  readonly mostTiles: number | null;
  readonly hasSingleTiles: boolean;
  /** Of a frame of a video: its embeddings per side, and whether it is the last. Null for pictures. */
  readonly frame: { readonly perSide: number; readonly isLast: boolean } | null;
  readonly filter: Parameters<PixelTools["resample"]>[1]["filter"];
  readonly mean: [number, number, number];
  readonly scaling: ReturnType<typeof scalingOf>;
}

/** @throws EngineError like `parseProcessorOptions`. */
export function parseAnyresOptions(json: ProcessorOptions): AnyresOptions {
  const options = parseProcessorOptions(imageOptions, json);
  const tile = tileOf(options);
  const { image_grid_pinpoints: given, model_grid_pinpoints: ofModel } = options;
  if (given !== undefined && JSON.stringify(given) !== JSON.stringify(ofModel)) {
    throw invalidOption("image_grid_pinpoints", "differ from those of config.json");
  }
  for (const [index, [height, width]] of ofModel.entries()) {
    const path = `image_grid_pinpoints[${index}]`;
    const isWhole = height % tile === 0 && width % tile === 0;
    if (!isWhole) throw invalidOption(path, `is ${height}x${width}; expected multiples of the tile's side, ${tile}`);
    const numTiles = (height / tile) * (width / tile);
    if (numTiles > MAX_TILES) throw invalidOption(path, `has ${numTiles} tiles; expected at most ${MAX_TILES}`);
  }
  return {
    tile,
    resolutions: ofModel,
    featuresPerSide: options.features_per_side,
    mostTiles: options.most_tiles ?? null,
    hasSingleTiles: options.has_single_tiles,
    frame:
      options.video_frame === undefined
        ? null
        : {
            perSide: Math.ceil(options.features_per_side / FRAME_SCALE),
            isLast: options.video_frame === "last",
          },
    filter: options.resample,
    mean: options.image_mean,
    scaling: scalingOf(options),
  };
}

function tileOf(options: z.output<typeof imageOptions>): number {
  const { size, do_center_crop, crop_size, default_tile_size: own, crops_tiles } = options;
  const { height, width } = sidesOf(size ?? own);
  const crop = (do_center_crop ?? crops_tiles) ? sidesOf(crop_size ?? own) : { height, width };
  if (height !== width) throw invalidOption("size", `is ${height}x${width}; expected a square`);
  if (crop.height !== height || crop.width !== width) {
    throw invalidOption("crop_size", `is ${crop.height}x${crop.width}; expected that of size, ${height}x${width}`);
  }
  return height;
}

type Sides = number | { readonly shortest_edge: number } | { readonly height: number; readonly width: number };

function sidesOf(sides: Sides): { readonly height: number; readonly width: number } {
  if (typeof sides === "number") return { height: sides, width: sides };
  return "height" in sides ? sides : { height: sides.shortest_edge, width: sides.shortest_edge };
}
