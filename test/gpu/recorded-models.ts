/** Recorded conversations of every decoder family, as requests to an engine core and comparisons with its answers. */
import type { DtypeName } from "../../engine/contract/config.ts";
import type { SampledLogprobs } from "../../engine/contract/request-output.ts";
import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import type { EngineRequest, ImageFeature } from "../../engine/core/engine-request.ts";
import type { BuiltModel, KvLayout } from "../../engine/models/built-model.ts";
import { embeddingsField } from "../../engine/multimodal/processed-item.ts";
import { goldenRequest } from "../engine/core/golden-engine.ts";
import { loadGoldens, pagedGoldenNames, type GoldenCase } from "../support/checkpoints/goldens.ts";
import { hubCases, writeHubCheckpoint, type HubCase } from "../support/checkpoints/hub-checkpoints.ts";
import { cudaFamilies } from "./cuda-families.ts";
import type { ExperimentDevice } from "./experiment.ts";
import { compareLogprobs, compareTokens, type Comparison } from "./near-ties.ts";

/** The model whose requests bring pictures; those of the others bring recorded features. */
const encodesPictures = "llava-default";

const hubFamily = /^\.\.\/hub\/([^/]+)\/v4$/;

/** Their configurations penalise repetition, so their logprobs do not show ties. */
const penalised: ReadonlySet<string> = new Set(["qwen2.5", "hunyuan-dense", "hunyuan-ocr"]);

/** Checkpoints as they are on the hub, with recorded logprobs: the cases without pictures. */
const hubFamilies = cudaFamilies.flatMap((family) => {
  const name = hubFamily.exec(family.name)?.[1];
  return name === undefined || penalised.has(name) ? [] : [{ ...family, name: `hub/${name}` }];
});

/** With recurrent layers, beside keys and values. */
const recurrentNames = ["qwen3.5", "lfm2"] as const;

export const recordedNames: readonly string[] = [
  ...pagedGoldenNames,
  ...recurrentNames,
  ...hubFamilies.map(({ name }) => name),
];

export interface RecordedCase {
  readonly name: string;
  readonly numTokens: number;
  request(requestId: string, model: BuiltModel): EngineRequest;
  /** @param logprobs Of each token; empty where the request asks for none. */
  compare(tokenIds: readonly number[], logprobs: readonly SampledLogprobs[], model: BuiltModel): Comparison;
}

export interface RecordedModel {
  readonly checkpointFolder: string;
  /** Whether requests bring pictures, which need the vision encoder. */
  readonly encodesPictures: boolean;
  /** Whether all logits are recorded, or only logprobs of the greedy tokens. */
  readonly hasLogits: boolean;
  readonly cases: readonly RecordedCase[];
}

/**
 * @param name One of `recordedNames`.
 * @param folder Empty; receives the files of a checkpoint of the hub.
 */
export async function loadRecordedModel(name: string, folder: string): Promise<RecordedModel> {
  if (name.startsWith("hub/")) {
    const ofHub = name.slice("hub/".length);
    await writeHubCheckpoint(ofHub, "v4", folder);
    const cases = hubCases(ofHub).filter(({ pictures }) => pictures.length === 0);
    return { checkpointFolder: folder, encodesPictures: false, hasLogits: false, cases: cases.map(hubCase) };
  }
  const { checkpointFolder, cases } = await loadGoldens(name);
  const isEncoded = name === encodesPictures;
  return {
    checkpointFolder,
    encodesPictures: isEncoded,
    hasLogits: true,
    cases: cases.map((golden) => goldenCase(golden, isEncoded ? goldenRequest : requestWithFeatures)),
  };
}

/** Whether the device computes the model in this form. */
export function isServed(name: string, device: ExperimentDevice, dtype: DtypeName, layout: KvLayout["kind"]): boolean {
  const family = [...cudaFamilies, ...hubFamilies].find((candidate) => candidate.name === name);
  if (device === "cpu" || family === undefined) return true;
  const { dtypes, layouts } = family;
  const hasDtype = dtypes === undefined || dtypes.some((each) => each === dtype);
  return hasDtype && (layouts === undefined || layouts.some(({ kind }) => kind === layout));
}

/** Two logits this close, as a share of a row's range, may change places where numbers are rounded to 16 bits. */
const nearTie: Readonly<Partial<Record<DtypeName, number>>> = { float32: 1e-5, float16: 0.02, bfloat16: 0.1 };
/** Logprobs this close are equal up to rounding. */
const nearLogprob: Readonly<Partial<Record<DtypeName, number>>> = { float32: 1e-3, float16: 0.1, bfloat16: 0.3 };

/**
 * Random checkpoints whose logprobs depend on the last bits of their activations. Their CUDA graphs were computed in
 * PyTorch on the CPU, with every value rounded to its type, 400 times with noise of an eighth of a rounding step on each
 * product: these are the largest gaps, rounded up by a tenth at most. In float32 the same graphs are within 0.0003 of the
 * recordings.
 */
const sensitive: Readonly<Record<string, Readonly<Partial<Record<DtypeName, number>>>>> = {
  "hub/phi-4-mini": { bfloat16: 2.25, float16: 0.5 },
  "hub/qwen3.5": { bfloat16: 1.25 },
  "hub/ministral3": { bfloat16: 0.8 },
  "hub/internvl3": { bfloat16: 0.55 },
  "hub/minicpm-ocr": { bfloat16: 0.8 },
  "hub/minicpm-v-4.6": { bfloat16: 0.8 },
  "hub/lfm2": { bfloat16: 0.5 },
};

/** The largest gap between answer and recording that rounding explains. */
export function toleranceOf(name: string, dtype: DtypeName): number {
  return sensitive[name]?.[dtype] ?? (name.startsWith("hub/") ? nearLogprob : nearTie)[dtype] ?? 0;
}

function goldenCase(golden: GoldenCase, request: typeof goldenRequest): RecordedCase {
  return {
    name: golden.name,
    numTokens: golden.promptTokenIds.length + golden.greedyTokenIds.length,
    request: (requestId, model) => request(requestId, golden, model),
    compare: (tokenIds, _, model) => compareTokens(tokenIds, golden, model.decoder.vocabSize),
  };
}

const NUM_LOGPROBS = 10;

function hubCase(recorded: HubCase): RecordedCase {
  const { name, promptTokenIds, greedyTokenIds } = recorded;
  const params = { temperature: 0, ignoreEos: true, maxTokens: greedyTokenIds.length, logprobs: NUM_LOGPROBS };
  return {
    name,
    numTokens: promptTokenIds.length + greedyTokenIds.length,
    request: (requestId) => ({
      requestId,
      promptTokenIds,
      images: [],
      samplingParams: createSamplingParams(params),
      badWordsTokenIds: [],
      cacheSalt: null,
      grammar: null,
      seed: 0,
    }),
    compare: (tokenIds, logprobs) => compareLogprobs(tokenIds, logprobs, recorded),
  };
}

/** The recorded prompt with the recorded features of its pictures, each run of placeholders as an image of its own. */
function requestWithFeatures(requestId: string, golden: GoldenCase, model: BuiltModel): EngineRequest {
  const request = goldenRequest(requestId, { ...golden, pictures: [], pixelValues: null }, model);
  const { promptTokenIds, imageFeatures, positions } = golden;
  const numPromptTokens = promptTokenIds.length;
  const given = positions && {
    axes: Int32Array.from(positions.flatMap((axis) => axis.slice(0, numPromptTokens))),
    next: positions[0]![numPromptTokens]!,
  };
  return {
    ...request,
    images: imageFeatures === null ? [] : featuresOf(golden, imageFeatures, model),
    ...(given && { positions: given }),
  };
}

function featuresOf(golden: GoldenCase, features: Float32Array, { imageTokenId, decoder }: BuiltModel): ImageFeature[] {
  const { promptTokenIds, name } = golden;
  const { imageWidth } = decoder;
  const images: ImageFeature[] = [];
  let numRows = 0;
  for (let offset = 0; offset < promptTokenIds.length; offset++) {
    if (promptTokenIds[offset] !== imageTokenId) continue;
    let end = offset;
    while (promptTokenIds[end] === imageTokenId) end++;
    const length = end - offset;
    const data = features.subarray(numRows * imageWidth, (numRows + length) * imageWidth);
    images.push({
      tensors: new Map([[embeddingsField, { elementType: "float32", shape: [length, imageWidth], data }]]),
      mmHash: `${name} ${images.length}`,
      placeholder: { offset, length, isEmbed: null },
    });
    numRows += length;
    offset = end;
  }
  return images;
}
