/** Joins a text model and a pipeline to the definition and the checkpoint of one model with images. */
import { createHash } from "node:crypto";
import { stat } from "node:fs/promises";
import { resolve } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import { shown } from "../../excerpt.ts";
import type { MultiModalInputs } from "../../multimodal/multimodal-processor.ts";
import { openCheckpoint } from "../../weights/checkpoint.ts";
import type { Checkpoint } from "../../weights/checkpoint.ts";
import { hashFile } from "../../weights/file-hash.ts";
import { readSafetensorsHeader } from "../../weights/safetensors.ts";
import type { StoredTensor } from "../../weights/stored-tensor.ts";
import { llavaInputs } from "../llava/processor.ts";
import type { ConfiguredModel, ModelDefinition, ProcessorContext } from "../model-definition.ts";
import type { WeightSource } from "../weight-source.ts";
import { callPipeline, requireVisionEncoder } from "./check-pipeline.ts";
import type { Pipeline, PipelineWeights } from "./pipeline.ts";

/** Prefix of the pipeline's tensors among those of the model, so that no name is taken twice. */
const tensorPrefix = "pipeline/";

/** The text model's definition with the pipeline's images. Its functions also throw the errors of the pipeline's. */
export function withPipeline(definition: ModelDefinition, pipeline: Pipeline): ModelDefinition {
  const { imagePlaceholder, imageStart, imageEnd, placeholderTokenId, images } = pipeline;
  return {
    architecture: definition.architecture,
    images: images === undefined ? llavaInputs : namedInputs(pipeline.name, images),
    imageSpelling: { imagePlaceholder, imageStart, imageEnd },
    configure(json): ConfiguredModel {
      const text = definition.configure(json);
      const { vocabSize } = text.decoder;
      if (!Number.isInteger(placeholderTokenId) || placeholderTokenId < 0 || placeholderTokenId >= vocabSize) {
        throw new EngineError(
          "invalid_configuration",
          `The pipeline ${pipeline.name} has the placeholder token ${placeholderTokenId}; the model's vocabulary has ${vocabSize} tokens.`,
        );
      }
      const returned: unknown = callPipeline(pipeline.name, "visionEncoder", () =>
        pipeline.visionEncoder(text.decoder),
      );
      const vision = requireVisionEncoder(pipeline.name, returned);
      return {
        ...text,
        imageTokenId: placeholderTokenId,
        visionEncoder: {
          ...vision,
          build: (context) =>
            callPipeline(pipeline.name, "build", () =>
              vision.build({ ...context, weights: ownWeights(context.weights) }),
            ),
        },
        buildDecoder: (context, maxModelLen) => text.buildDecoder(context, maxModelLen, true),
      };
    },
  };
}

type Images = MultiModalInputs<ProcessorContext>;

/** The same, with the pipeline's name in errors. */
function namedInputs(name: string, images: Images): Images {
  const { pixelProgram } = images;
  return {
    createProcessingInfo: (context) =>
      callPipeline(name, "createProcessingInfo", () => images.createProcessingInfo(context)),
    createProcessor: (info, context) =>
      callPipeline(name, "createProcessor", () => images.createProcessor(info, context)),
    ...(images.createDummyInputs !== undefined && {
      createDummyInputs: (info, context) =>
        callPipeline(name, "createDummyInputs", () => images.createDummyInputs!(info, context)),
    }),
    ...(pixelProgram !== undefined && { pixelProgram }),
  };
}

/** The pipeline's tensors by their own names. */
function ownWeights(weights: WeightSource): WeightSource {
  const prefixed = (name: string): string => tensorPrefix + name;
  return {
    prepared: ({ rowOrder, ...request }) =>
      weights.prepared({
        ...request,
        name: prefixed(request.name),
        sources: request.sources.map(prefixed),
        ...(rowOrder !== undefined && { rowOrder: prefixed(rowOrder) }),
      }),
    stored: (name, shape) => weights.stored(prefixed(name), shape),
    has: (name) => weights.has(prefixed(name)),
    quantised: (name) => weights.quantised(prefixed(name)),
    fewestStoredBits: () => weights.fewestStoredBits(),
  };
}

interface OpenedWeights {
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  contentHash(signal: AbortSignal | undefined): Promise<string>;
}

/**
 * The text model's checkpoint with the pipeline's tensors.
 *
 * @throws EngineError `invalid_configuration` for a path that does not exist or has no tensors to use, and for a
 *   ready-made export; `invalid_checkpoint` for files that cannot be read.
 */
export async function joinCheckpoints(
  text: Checkpoint,
  { name, weights }: Pick<Pipeline, "name" | "weights">,
  cacheFolder: string,
): Promise<Checkpoint> {
  if (text.onnxFileNames !== null) {
    throw new EngineError(
      "invalid_configuration",
      `The pipeline ${name} needs a model of safetensors files; this one is a ready-made ONNX export.`,
    );
  }
  const opened = await Promise.all(weights.map((part) => openWeights(name, part, cacheFolder)));
  const tensors = new Map(text.tensors);
  for (const part of opened) {
    for (const [tensorName, tensor] of part.tensors) {
      const joined = tensorPrefix + tensorName;
      if (tensors.has(joined)) {
        throw new EngineError("invalid_checkpoint", `Two files of the pipeline ${name} have the tensor ${tensorName}.`);
      }
      tensors.set(joined, { ...tensor, name: joined });
    }
  }
  return {
    ...text,
    tensors,
    async contentHash({ signal, files } = {}) {
      const hash = createHash("sha256").update(await text.contentHash({ signal, ...(files && { files }) }));
      hash.update(JSON.stringify([name]));
      for (const part of opened) hash.update(await part.contentHash(signal));
      return hash.digest("hex");
    },
  };
}

async function openWeights(pipeline: string, part: PipelineWeights, cacheFolder: string): Promise<OpenedWeights> {
  const opened = await openPart(pipeline, part, cacheFolder);
  if (opened.tensors.size > 0) return opened;
  const { path, prefixes } = part;
  const ofPrefix = prefixes === undefined ? "" : ` whose names start with ${prefixes.map(shown).join(" or ")}`;
  throw new EngineError(
    "invalid_configuration",
    `The pipeline ${pipeline} needs tensors of ${path}${ofPrefix}; there are none.`,
  );
}

async function openPart(
  pipeline: string,
  { path, prefixes }: PipelineWeights,
  cacheFolder: string,
): Promise<OpenedWeights> {
  const stats = await stat(path).catch(() => null);
  if (stats === null) {
    throw new EngineError("invalid_configuration", `The pipeline ${pipeline} needs ${path}, which does not exist.`, {
      setting: "pipelineParams",
    });
  }
  const isUsed = ([name]: readonly [string, StoredTensor]): boolean =>
    prefixes === undefined || prefixes.some((prefix) => name.startsWith(prefix));
  if (stats.isDirectory()) {
    const checkpoint = await openCheckpoint(path, { cacheFolder });
    const tensors = new Map([...checkpoint.tensors].filter(isUsed));
    const files = [...new Set([...tensors.values()].map(({ file }) => file))].sort();
    return { tensors, contentHash: (signal) => checkpoint.contentHash({ signal, files }) };
  }
  const file = resolve(path);
  const header = await readSafetensorsHeader(file);
  if (header === null) throw new EngineError("invalid_checkpoint", `${path} is not a safetensors file.`);
  return {
    tensors: new Map([...header].filter(isUsed)),
    contentHash: (signal) => hashFile(file, { cacheFolder, signal }),
  };
}
