/**
 * Time of the vision encoders of all families for one picture of 1024x768 pixels, against that of LLaVA 1.5, which makes
 * 336x336 of it, and the same ratio of their operations. The towers have their real sizes and random weights; the decoders
 * that they project to are narrow.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";

import type { ImageFeature } from "../../engine/core/engine-request.ts";
import { externalDataFolder } from "../../engine/graph/external-data.ts";
import { createImageInputs } from "../../engine/input/multimodal-inputs.ts";
import { imaginedWeights, type WeightSource } from "../../engine/models/weight-source.ts";
import { dummyPicture } from "../../engine/multimodal/dummy-inputs.ts";
import { splitFields } from "../../engine/multimodal/field-config.ts";
import type { ImageSize } from "../../engine/multimodal/processing-info.ts";
import { numElements } from "../../engine/runtime/element-type.ts";
import { loadTokenizer } from "../../engine/text/tokenizer.ts";
import { BuiltVisionEncoder } from "../../engine/vision/built-vision-encoder.ts";
import type { StoredTensor } from "../../engine/weights/stored-tensor.ts";
import { configureGraphs } from "../support/engine/shipped-models.ts";
import { encoderFamilies, type EncoderFamily } from "./encoder-shapes.ts";
import { numTowerOperations } from "./encoder-work.ts";
import { ratioFigure, reportProgress, selectParts, type Figure } from "./measure.ts";
import { benchFolder, numThreads } from "./settings.ts";

const picture = { width: 1024, height: 768 };
/** Warms the session up: its first run reserves memory and reads the weights. */
const smallPicture = { width: 112, height: 112 };
/** Standard deviation of the weights. */
const SPREAD = 0.02;
/** The largest tensor: a merger over squares of four patches, [4 * 1280, 4 * 1280]. */
const NUM_RANDOM_WEIGHTS = 32 * 2 ** 20;

export async function benchEncoders(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const folder = join(benchFolder, "encoders");
  mkdirSync(folder, { recursive: true });
  const weights = randomWeights(join(folder, "weights.bin"));
  const [reference, ...others] = encoderFamilies();
  const families = selectParts(others, ({ name }) => name, only);
  const figures: Figure[] = [];
  for (const family of families) {
    const ours: number[] = [];
    const theirs: number[] = [];
    let shape = "";
    for (let round = 0; round < rounds; round++) {
      const referenceRun = await measure(reference!, weights, folder);
      const run = await measure(family, weights, folder);
      theirs.push(referenceRun.picturesPerSecond);
      ours.push(run.picturesPerSecond);
      const timeRatio = theirs[round]! / ours[round]!;
      const operationsRatio = run.numOperations / referenceRun.numOperations;
      shape = `${run.numEmbeddings} embeddings, ${operationsRatio.toFixed(1)} times the operations`;
      reportProgress(
        `${family.name}: ${timeRatio.toFixed(1)} times the time, ${operationsRatio.toFixed(1)} times the operations`,
      );
    }
    const name = `${family.name}, ${shape}, against ${reference!.name}`;
    figures.push({
      ...ratioFigure({ name, unit: "pictures/s", ours, theirs, target: 0 }),
      target: null,
      reached: null,
    });
  }
  return figures;
}

async function measure(
  family: EncoderFamily,
  weights: WeightSource,
  folder: string,
): Promise<{ readonly picturesPerSecond: number; readonly numEmbeddings: number; readonly numOperations: number }> {
  const graphs = configureGraphs(family.config, { dtype: "float32", device: "cpu", maxModelLen: null });
  const { visionEncoder, decoder } = graphs.model;
  const context = graphs.buildVisionEncoder(weights);
  if (visionEncoder === null || context === null) throw new Error(`${family.name} has no vision encoder.`);
  const path = join(folder, `${family.name.replaceAll(" ", "-")}.onnx`);
  writeFileSync(path, context.graph.encode());
  const image = await processPicture(picture, family, graphs);
  const small = await processPicture(smallPicture, family, graphs);
  const graph = {
    form: "in-place",
    path,
    weightBytes: context.graph.externalBytes,
    weights: context.graph.externalTensors,
    ...visionEncoder,
  } as const;
  using encoder = new BuiltVisionEncoder(graph, decoder.imageWidth, {
    device: "cpu",
    deviceId: 0,
    numThreads,
    externalDataFolder,
  });
  encoder.encode(small);
  const start = performance.now();
  encoder.encode(image);
  const seconds = (performance.now() - start) / 1000;
  const numPixelValues = numElements(image.tensors.get("pixel_values")!.shape);
  return {
    picturesPerSecond: 1 / seconds,
    numEmbeddings: image.placeholder.length,
    numOperations: numTowerOperations(family.work, numPixelValues),
  };
}

async function processPicture(
  picture: ImageSize,
  { folder, preprocessorConfig }: EncoderFamily,
  { definition, model }: ReturnType<typeof configureGraphs>,
): Promise<ImageFeature> {
  const imageLimits = { maxImagesPerPrompt: 1, maxImageBytes: 2 ** 26, maxImagePixels: 2 ** 26, fetchTimeoutMs: 1000 };
  const tokenizer = await loadTokenizer(folder);
  const parts = { definition, model: { ...model, contentHash: "" }, tokenizer, preprocessorConfig, imageSources: [] };
  await using inputs = createImageInputs({ imageLimits }, parts);
  if (inputs === null) throw new Error("The model takes no images.");
  const { processor, info } = inputs;
  const signal = new AbortController().signal;
  const batch = await processor.processImages(
    [{ bytes: dummyPicture(picture), parameter: "picture" }],
    processor.options,
    signal,
  );
  const [tensors] = splitFields(batch.fields, processor.fieldConfigs(batch));
  const placeholder = { offset: 0, length: info.numImageTokens(picture), isEmbed: null };
  return { tensors: tensors!, mmHash: "", placeholder };
}

/** Every tensor begins at the start of one file, so that the weights of all towers take no room. */
function randomWeights(file: string): WeightSource {
  const values = Float32Array.from({ length: 4096 }, () => SPREAD * gaussian());
  const all = new Float32Array(NUM_RANDOM_WEIGHTS);
  for (let from = 0; from < all.length; from += values.length) all.set(values, from);
  writeFileSync(file, all);
  const stored = (tensor: StoredTensor): StoredTensor => ({
    ...tensor,
    file,
    byteLength: numElements(tensor.shape) * Float32Array.BYTES_PER_ELEMENT,
  });
  return {
    ...imaginedWeights,
    prepared(request) {
      const { weight, scales, zeroPoints } = imaginedWeights.prepared(request);
      return { weight: stored(weight), scales, zeroPoints };
    },
    stored: (name, shape) => stored(imaginedWeights.stored(name, shape)!),
  };
}

function gaussian(): number {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}
