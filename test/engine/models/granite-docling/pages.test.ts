import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createDataUrlImageSource, createEngine } from "../../../../engine/index.ts";
import { largestPage, pageGrid, parsePageOptions } from "../../../../engine/models/granite-docling/tiles.ts";
import { numInternTiles } from "../../../../engine/models/internvl/tiles.ts";
import { splitFields } from "../../../../engine/multimodal/field-config.ts";
import type { ProcessorOptions } from "../../../../engine/multimodal/multimodal-processor.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import {
  hubCases,
  type HubCase,
  hubPictureReference,
  optionCases,
  writeHubCheckpoint,
} from "../../../support/checkpoints/hub-checkpoints.ts";
import { compareHubAnswers, hubEngineConfig } from "../../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
import { testRefusals } from "../refused-configurations.ts";

interface Recorded {
  readonly grids: readonly {
    readonly width: number;
    readonly height: number;
    readonly options: ProcessorOptions;
    readonly grid: readonly [rows: number, columns: number];
  }[];
  /** By picture: SHA-256 of the pixel values. */
  readonly pixels: Readonly<Record<string, string>>;
}

const name = "granite-for-docling";
const file = new URL(`../../../fixtures/hub/${name}/pictures.json`, import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recorded;

test("the grids of 200 pages equal those of transformers", () => {
  expect(recorded.grids).toHaveLength(200);
  for (const { options, grid, ...page } of recorded.grids) {
    const [rows, columns] = grid;
    expect(pageGrid(page, parsePageOptions(options)), JSON.stringify({ page, options })).toEqual({ rows, columns });
  }
});

test.for<[options: ProcessorOptions, numTiles: number]>([
  [{}, 33],
  [{ max_patches: 1 }, 1],
  [{ crop_to_patches: false }, 1],
  [{ min_patches: 17, max_patches: 17 }, 1],
  [{ dense_max_patches: 64, dense_max_scale: 0.7 }, 65],
  [{ dense_max_patches: 60, dense_min_aspect: 1.1, dense_max_aspect: 1.3 }, 57],
])("with %j no page has more tiles than the largest, %i", ([json, numTiles]) => {
  const options = parsePageOptions(json);
  expect(numInternTiles(pageGrid(largestPage(options), options))).toBe(numTiles);
  for (let width = 1; width < 12_000; width += 481) {
    for (let height = 1; height < 12_000; height += 467) {
      expect(numInternTiles(pageGrid({ width, height }, options)), `${width}x${height}`).toBeLessThanOrEqual(numTiles);
    }
  }
});

test("pixel values are bit-identical to those of transformers", async () => {
  await using inputs = await createHubInputs(name);
  const { processor } = inputs.imageInputs!;
  const pictures = Object.entries(recorded.pixels);
  expect(pictures).toHaveLength(5);
  for (const [picture, hash] of pictures) {
    const [, base64] = (await hubPictureReference(picture)).split(",");
    const encoded = { bytes: Buffer.from(base64!, "base64"), parameter: "picture" };
    const batch = await processor.processImages([encoded], processor.options, new AbortController().signal);
    const [tensors] = splitFields(batch.fields, processor.fieldConfigs(batch));
    const { data } = tensors!.get("pixel_values") as ItemTensor<"float32">;
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    expect(createHash("sha256").update(bytes).digest("hex"), picture).toBe(hash);
  }
});

test.for(["slots", "paged"] as const)("requests on the fine path over %s are answered like it", async (kvLayout) => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v5", folder.path);
  // Fine pages have more embeddings than any on the coarse path.
  const mmProcessorOptions = { fine_route: true };
  const config = { ...hubEngineConfig(folder.path, cache.path), kvLayout, mmProcessorOptions };
  const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
  try {
    const cases = optionCases(name);
    expect(await compareHubAnswers(engine, folder.path, cases)).toMatchObject({ numAnswers: 2 * cases.length });
  } finally {
    await engine.close();
  }
});

test("a checkpoint without the fine path answers on the coarse one, and rejects requests for the other", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v5", folder.path);
  const path = join(folder.path, "config.json");
  const config = JSON.parse(readFileSync(path, "utf8")) as { readonly vision_config: object };
  const changed = { ...config, vision_config: { ...config.vision_config, use_fine_route: false } };
  writeFileSync(path, JSON.stringify(changed));
  const engine = createEngine(hubEngineConfig(folder.path, cache.path), { imageSources: [createDataUrlImageSource()] });
  try {
    const coarse = hubCases(name).filter(({ pictures }) => pictures.length === 1);
    expect(await compareHubAnswers(engine, folder.path, coarse)).toMatchObject({ numAnswers: 2 * coarse.length });
    const [fine] = optionCases(name) as [HubCase];
    await expect(compareHubAnswers(engine, folder.path, [fine])).rejects.toThrow(
      "fine_route is true; the checkpoint has no fine path",
    );
  } finally {
    await engine.close();
  }
});

test.for<[options: ProcessorOptions, message: string]>([
  [{ min_patches: 33 }, "min_patches is 33; expected at most max_patches, 32"],
  [{ min_patches: 8, dense_max_patches: 6 }, "dense_max_patches is 6; expected 0, or at least min_patches, 8"],
  [{ dense_max_scale: -1 }, "dense_max_scale is -1; expected a number from 0 to 16384"],
  [{ do_image_splitting: true }, "do_image_splitting is not supported"],
])("the options %j are rejected", ([options, message]) => {
  expect(() => parsePageOptions(options)).toThrow(message);
});

const architectures = ["GraniteDoclingForConditionalGeneration"];

testRefusals([
  [{ architectures, model_type: "idefics3" }, 'config.json: model_type = "idefics3" is not supported'],
  [
    { architectures, text_config: { model_type: "granitemoe" } },
    'config.json: text_config.model_type = "granitemoe" is not supported',
  ],
  [
    { architectures, text_config: { hidden_size: 512, head_dim: 64 } },
    "vision_config.out_hidden_size = 1024 is not supported",
  ],
  [
    { architectures, vision_config: { scale_factor: 5 } },
    "vision_config.scale_factor = 5 is not supported: 32 patches per side",
  ],
  [
    { architectures, vision_config: { scale_factor: 1 } },
    "vision_config.scale_factor = 1 is not supported: the fine path",
  ],
  [
    { architectures, vision_config: { deepstack_visual_indexes: [7, 3] } },
    "deepstack_visual_indexes = [7,3] is not supported",
  ],
  [{ architectures, vision_config: { deepstack_visual_indexes: [12] } }, "expected ascending layers of the 12"],
  [
    { architectures, text_config: { num_hidden_layers: 3 } },
    "the decoder has 3 layers, and all but the last may get features",
  ],
]);
