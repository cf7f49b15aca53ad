/** Engine cores over the recorded checkpoints, fed with messages and stepped by the test. */
import type { DtypeName, EngineConfig } from "../../../engine/contract/config.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import { createEngineCore } from "../../../engine/core/create-engine-core.ts";
import type { EngineCore } from "../../../engine/core/engine-core.ts";
import type { EngineRequest, ImageFeature } from "../../../engine/core/engine-request.ts";
import type { BuiltModel, KvLayout } from "../../../engine/models/built-model.ts";
import type { ItemTensor } from "../../../engine/multimodal/processed-item.ts";
import type {
  EncoderOutput,
  EngineCoreOutput,
  ToEngineThread,
  WorkerOptions,
} from "../../../engine/thread/messages.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import type { GoldenCase, goldenCheckpoints } from "../../support/checkpoints/goldens.ts";
import { buildModel } from "../../support/engine/shipped-models.ts";

const maxModelLen = 512;

export interface GoldenModel {
  readonly model: BuiltModel;
  readonly cases: readonly GoldenCase[];
}

export async function buildGoldenModel(
  name: (typeof goldenCheckpoints)[number] | "qwen2-vl" | `onnx-exports/${"llama" | "llava" | "smolvlm" | "qwen2-vl"}`,
  cacheFolder: string,
  dtype: DtypeName = "float32",
  kvLayout: KvLayout = { kind: "slots" },
): Promise<GoldenModel> {
  const { checkpointFolder, cases } = await loadGoldens(name);
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder });
  const model = await buildModel(checkpoint, {
    dtype,
    device: "cpu",
    kvLayout,
    maxModelLen,
    cacheFolder,
    numThreads: 1,
  });
  return { model, cases };
}

export function createWorkerOptions(model: BuiltModel, overrides: Partial<EngineConfig> = {}): WorkerOptions {
  return {
    config: {
      model: "golden",
      dtype: "float32",
      device: "cpu",
      deviceId: 0,
      maxModelLen,
      maxNumSequences: 8,
      maxNumBatchedTokens: 512,
      maxNumWaiting: 64,
      logitsProcessors: [],
      logitsProcessorPath: [],
      numThreads: 1,
      cacheFolder: "",
      imageLimits: { maxImagesPerPrompt: 3, maxImageBytes: 1, maxImagePixels: 1, fetchTimeoutMs: 1 },
      ...overrides,
    },
    model,
    maxModelLen,
    eosTokenIds: [],
    maxEmbeddingsPerImage: model.visionEncoder?.numImageTokens ?? 0,
    warmUpImage: null,
  };
}

export interface Generation {
  readonly tokenIds: number[];
  readonly outputs: EngineCoreOutput[];
}

/** Mutable: collects the outputs of each request. */
export class SteppedEngine implements Disposable {
  readonly #core: EngineCore;
  readonly #messages: ToEngineThread[];
  readonly generations = new Map<string, Generation>();
  /** Hashes of the images that were encoded, in order. */
  readonly encodedImages: string[] = [];
  /** By hash. */
  readonly embeddings = new Map<string, EncoderOutput["embeddings"]>();
  numSteps = 0;

  private constructor(core: EngineCore, messages: ToEngineThread[]) {
    this.#core = core;
    this.#messages = messages;
  }

  static async create(options: WorkerOptions): Promise<SteppedEngine> {
    const messages: ToEngineThread[] = [];
    return new SteppedEngine(await createEngineCore(options, () => messages.splice(0)), messages);
  }

  get stats() {
    return this.#core.stats;
  }

  add(request: EngineRequest): void {
    this.generations.set(request.requestId, { tokenIds: [], outputs: [] });
    this.#messages.push({ kind: "add", request });
  }

  /** Takes effect when messages are drained: between the run and the update of the next step. */
  abort(...requestIds: readonly string[]): void {
    this.#messages.push({ kind: "abort", requestIds });
  }

  /** Returns whether there was anything to do. */
  step(): boolean {
    if (!this.#core.hasWork) this.#core.drainMessages();
    if (!this.#core.hasWork) return false;
    this.numSteps++;
    for (const output of this.#core.step()) {
      const generation = this.generations.get(output.requestId)!;
      generation.outputs.push(output);
      generation.tokenIds.push(...output.tokenIds);
    }
    this.#core.copyEncoderOutputs();
    for (const { mmHash, embeddings } of this.#core.takeEncoderOutputs()) {
      this.encodedImages.push(mmHash);
      this.embeddings.set(mmHash, embeddings);
    }
    return true;
  }

  /** Has the images of all cases encoded, so that later requests do not wait for them. */
  async encodeImages({ cases, model }: GoldenModel): Promise<void> {
    for (const [index, recorded] of cases.entries()) {
      this.add({ ...goldenRequest(`image ${index}`, recorded, model, { maxTokens: 1 }), cacheSalt: "images" });
    }
    await this.runToEnd();
    this.generations.clear();
  }

  get isEncoding(): boolean {
    return this.#core.isEncoding;
  }

  /** Whether the engine thread would sleep now. */
  get isWaiting(): boolean {
    return this.#core.isWaiting;
  }

  /** An image that is encoded beside the steps becomes known to the engine only here, never while a test steps it. */
  untilEncoded(): Promise<void> {
    return this.#core.encodingEnded;
  }

  async runToEnd(): Promise<void> {
    while (this.step()) if (this.#core.isWaiting) await this.#core.encodingEnded;
  }

  tokensOf(requestId: string): readonly number[] {
    return this.generations.get(requestId)!.tokenIds;
  }

  errorOf(requestId: string): EngineCoreOutput["error"] | undefined {
    return this.generations.get(requestId)!.outputs.at(-1)?.error;
  }

  [Symbol.dispose](): void {
    this.#core[Symbol.dispose]();
  }
}

/** The recorded prompt with its images, as the input processor would return it; greedy by default. */
export function goldenRequest(
  requestId: string,
  golden: GoldenCase,
  model: BuiltModel,
  samplingParams: Partial<SamplingParams> = {},
  seed = 0,
): EngineRequest {
  const params = { temperature: 0, maxTokens: golden.greedyTokenIds.length, ...samplingParams };
  return {
    requestId,
    promptTokenIds: golden.promptTokenIds,
    images: imagesOf(golden, model),
    samplingParams: createSamplingParams(params),
    badWordsTokenIds: [],
    cacheSalt: null,
    grammar: null,
    seed,
  };
}

function imagesOf({ promptTokenIds, pixelValues, pictures }: GoldenCase, model: BuiltModel): ImageFeature[] {
  if (pixelValues === null || model.visionEncoder === null) return [];
  const { imageSize, numImageTokens } = model.visionEncoder;
  const firstTokens = promptTokenIds.flatMap((id, position) =>
    id === model.imageTokenId && promptTokenIds[position - 1] !== id ? [position] : [],
  );
  const pixelsOf = (index: number): ItemTensor => ({
    elementType: "float32",
    shape: [3, imageSize, imageSize],
    data: pixelValues.subarray(index * 3 * imageSize ** 2, (index + 1) * 3 * imageSize ** 2),
  });
  return pictures.map((picture, index) => ({
    tensors: new Map([["pixel_values", pixelsOf(index)]]),
    mmHash: picture,
    placeholder: { offset: firstTokens[index]!, length: numImageTokens, isEmbed: null },
  }));
}
