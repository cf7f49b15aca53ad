/** The least that a decode step costs: the engine's own graph, bound once, run in a loop with nothing around it. */
import { performance } from "node:perf_hooks";
import { buildModel } from "../../engine/models/build-model.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { decoderSessionOptions } from "../../engine/core/session-options.ts";
import { benchConfig } from "./engine-throughput.ts";
import type { EngineBenchOptions } from "./engine-throughput.ts";

export class BareLoop implements Disposable {
  readonly #session: Session;
  readonly #model: Awaited<ReturnType<typeof buildModel>>;
  readonly #maxLen: number;

  private constructor(model: Awaited<ReturnType<typeof buildModel>>, options: EngineBenchOptions) {
    const config = benchConfig(options);
    this.#model = model;
    this.#maxLen = config.maxModelLen! + 1;
    this.#session = Session.load(model.decoder.path, decoderSessionOptions(config, model));
  }

  static async create(options: EngineBenchOptions): Promise<BareLoop> {
    const config = benchConfig(options);
    const model = await buildModel(await openCheckpoint(options.model, { cacheFolder: config.cacheFolder }), {
      dtype: config.dtype,
      device: config.device,
      maxModelLen: config.maxModelLen,
      cacheFolder: config.cacheFolder,
      numThreads: options.numThreads,
    });
    return new BareLoop(model, options);
  }

  /** Tokens per second of `concurrency` sequences of `contextTokens` tokens, `decodeTokens` steps long. */
  decodeTokensPerSecond(concurrency: number, contextTokens: number, decodeTokens: number): number {
    const { numLayers, numKvHeads, headDim, vocabSize } = this.#model.decoder;
    using binding = this.#session.createBinding();
    using resources = new DisposableStack();
    const bindInput = (name: string, tensor: Tensor): Tensor => {
      binding.bindInput(name, resources.use(tensor));
      return tensor;
    };
    const kvShape = [concurrency, numKvHeads, this.#maxLen, headDim];
    for (let layer = 0; layer < numLayers; layer++) {
      for (const part of ["key", "value"]) {
        const kv = bindInput(`past.${layer}.${part}`, this.#session.allocateTensor("float32", kvShape));
        binding.bindOutput(`present.${layer}.${part}`, kv);
      }
    }
    const lengths = new Int32Array(concurrency);
    const totalLength = new Int32Array(1);
    const rows = BigInt64Array.from({ length: concurrency }, (_, row) => BigInt(row));
    const tokenIds = new BigInt64Array(concurrency).fill(300n);
    bindInput("input_ids", Tensor.fromTypedArray("int64", tokenIds, [concurrency, 1]));
    bindInput("seqlens_k", Tensor.fromTypedArray("int32", lengths, [concurrency]));
    bindInput("total_sequence_length", Tensor.fromTypedArray("int32", totalLength, []));
    bindInput("logit_rows", Tensor.fromTypedArray("int64", rows, [concurrency]));
    const logits = new Float32Array(concurrency * vocabSize);
    binding.bindOutput("logits", resources.use(Tensor.fromTypedArray("float32", logits, [concurrency, vocabSize])));
    const step = (length: number): void => {
      lengths.fill(length);
      totalLength[0] = length + 1;
      binding.run();
    };
    step(contextTokens); // Warms the session up for this shape.
    const startMs = performance.now();
    for (let index = 1; index <= decodeTokens; index++) step(contextTokens + index);
    return (concurrency * decodeTokens * 1000) / (performance.now() - startMs);
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }
}
