import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import type { VisionEncoderGraph } from "../../../../engine/models/built-model.ts";
import {
  largestPicture,
  layOutPicture,
  numEmbeddings,
  parseLfm2TileOptions,
} from "../../../../engine/models/lfm2-vl/tiles.ts";
import { dummyPicture } from "../../../../engine/multimodal/dummy-inputs.ts";
import { splitFields } from "../../../../engine/multimodal/field-config.ts";
import type { ProcessorOptions } from "../../../../engine/multimodal/multimodal-processor.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { BuiltVisionEncoder } from "../../../../engine/vision/built-vision-encoder.ts";
import { writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
import { buildFrom } from "../direct-build.ts";
import { testRefusals } from "../refused-configurations.ts";

type Sides = readonly [rows: number, columns: number];

/** Tiles and squares of the whole picture, as transformers 5.23 lays them out. */
const layouts: readonly (readonly [
  width: number,
  height: number,
  ProcessorOptions,
  tiles: Sides | null,
  whole: Sides,
])[] = [
  [1, 1, {}, null, [8, 8]],
  [336, 336, {}, null, [10, 10]],
  [300, 20, {}, null, [3, 31]],
  [20, 3000, {}, null, [94, 1]],
  [512, 512, {}, null, [16, 16]],
  [528, 496, {}, null, [16, 16]],
  [640, 480, {}, null, [13, 18]],
  [724, 724, {}, [2, 2], [16, 16]],
  [720, 736, {}, null, [16, 15]],
  [1024, 768, {}, [2, 3], [13, 18]],
  [1920, 1080, {}, [2, 4], [12, 21]],
  [1654, 2339, {}, [3, 2], [19, 13]],
  [5000, 400, {}, [1, 10], [4, 56]],
  [16384, 60, {}, [1, 10], [1, 264]],
  [1000, 1000, { max_tiles: 3 }, [2, 1], [16, 16]],
  [640, 480, { max_image_tokens: 64, min_image_tokens: 32 }, [2, 3], [6, 9]],
  [255, 257, { min_image_tokens: 256 }, null, [17, 16]],
  [1024, 768, { min_tiles: 1, max_tiles: 1 }, null, [13, 18]],
  [1024, 768, { do_image_splitting: false }, null, [13, 18]],
];

test.for(layouts)("%i x %i pixels with %j are cut and resized as in transformers", (layout) => {
  const [width, height, options, tiles, whole] = layout;
  expect(layOutPicture({ width, height }, parseLfm2TileOptions(options))).toEqual({
    tiles: tiles && { rows: tiles[0], columns: tiles[1] },
    whole: { rows: whole[0], columns: whole[1] },
  });
});

test.for<ProcessorOptions>([
  {},
  { max_tiles: 1, min_tiles: 1 },
  { use_thumbnail: false },
  { max_image_tokens: 64 },
  { min_image_tokens: 1, max_image_tokens: 1 },
])("with %j no usual picture has more embeddings than the largest", (json) => {
  const options = parseLfm2TileOptions(json);
  const most = numEmbeddings(largestPicture(options), options);
  for (let width = 1; width < 4000; width += 61) {
    for (let height = 1; height < 4000; height += 67) {
      const mostElongated = Math.max(options.max_image_tokens, options.max_tiles);
      if (Math.max(width, height) > mostElongated * Math.min(width, height)) continue;
      expect(numEmbeddings({ width, height }, options), `${width}x${height}`).toBeLessThanOrEqual(most);
    }
  }
});

test.for<[options: ProcessorOptions, message: string]>([
  [{ tile_size: 500 }, "tile_size is 500; expected a multiple of 32"],
  [{ min_tiles: 11 }, "min_tiles is 11; expected at most max_tiles, 10"],
  [{ min_image_tokens: 300 }, "min_image_tokens is 300; expected at most max_image_tokens, 256"],
  [{ max_pixels_tolerance: 0 }, "max_pixels_tolerance is 0; expected a number from 0.1 to 100"],
  [{ crop_to_patches: true }, "crop_to_patches is not supported"],
])("the options %j are rejected", ([options, message]) => {
  expect(() => parseLfm2TileOptions(options)).toThrow(message);
});

test.for<[width: number, height: number, options: ProcessorOptions, shapes: number[], numPatches: number]>([
  [1, 1, {}, [4, 4, 0, 0], 16 + 4],
  [40, 40, { do_image_splitting: false }, [8, 8, 0, 0], 64 + 4],
  [300, 100, {}, [6, 6, 4, 12], 3 * 36 + 48],
  [300, 100, { use_thumbnail: false }, [6, 6, 6, 6], 3 * 36],
])("%i x %i pixels with %j have at least one tile, and a picture or its stand-in", async (picture) => {
  const [width, height, options, shapes, numPatches] = picture;
  await using inputs = await createHubInputs("lfm2-vl");
  const { processor } = inputs.imageInputs!;
  const encoded = { bytes: dummyPicture({ width, height }), parameter: "picture" };
  const batch = await processor.processImages(
    [encoded],
    { ...processor.options, ...options },
    new AbortController().signal,
  );
  const [tensors] = splitFields(batch.fields, processor.fieldConfigs(batch));
  const spatialShapes = tensors!.get("spatial_shapes") as ItemTensor<"int64">;
  expect(Array.from(spatialShapes.data, Number)).toEqual(shapes);
  expect(tensors!.get("pixel_values")!.shape[0]).toBe(numPatches);
});

test("without the whole picture, the tiles have the embeddings that they have beside it", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint("lfm2-vl", "v5", folder.path);
  const model = await buildFrom(folder.path, { cacheFolder: cache.path });
  await using inputs = await createHubInputs("lfm2-vl");
  const { processor } = inputs.imageInputs!;
  const bytes = await readFile(new URL("../../../fixtures/goldens/pictures/drawing.png", import.meta.url));
  using encoder = new BuiltVisionEncoder(model.visionEncoder as VisionEncoderGraph, model.decoder.imageWidth, {
    device: "cpu",
    deviceId: 0,
    numThreads: 1,
    externalDataFolder: model.externalDataFolder,
  });
  const encode = async (changes: ProcessorOptions): Promise<Float32Array> => {
    const options = { ...processor.options, ...changes };
    const encoded = { bytes, parameter: "picture" };
    const batch = await processor.processImages([encoded], options, new AbortController().signal);
    const [tensors] = splitFields(batch.fields, processor.fieldConfigs(batch));
    const length = processor.numImageTokens(batch.imageSizes[0]!, options);
    return encoder.encode({ tensors: tensors!, mmHash: "", placeholder: { offset: 0, length, isEmbed: null } });
  };
  const both = await encode({});
  const alone = await encode({ use_thumbnail: false });
  const numInTiles = 6 * 9 * model.decoder.imageWidth;
  expect([both.length > numInTiles, alone.length]).toEqual([true, numInTiles]);
  const differences = alone.map((value, index) => Math.abs(value - both[index]!));
  expect(Math.max(...differences)).toBeLessThan(1e-4);
});

const pictures = { architectures: ["Lfm2VlForConditionalGeneration"] };

testRefusals([
  [{ ...pictures, vision_feature_layer: -2 }, "config.json: vision_feature_layer = -2 is not supported"],
  [
    { ...pictures, vision_config: { model_type: "siglip_vision_model" } },
    'config.json: vision_config.model_type = "siglip_vision_model" is not supported',
  ],
  [
    { ...pictures, vision_config: { num_patches: 250 } },
    "config.json: vision_config.num_patches = 250 is not supported: the positions are no square",
  ],
  [
    { ...pictures, text_config: { model_type: "lfm2_moe" } },
    'config.json: text_config.model_type = "lfm2_moe" is not supported',
  ],
  [{ ...pictures, projector_hidden_act: "tanh" }, 'config.json: projector_hidden_act = "tanh" is not supported'],
]);
