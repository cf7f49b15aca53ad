/** Runs the scheduler's output: encodes images, computes prompt chunks and newest tokens, samples the next tokens. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { ImageFeature } from "./engine-request.ts";
import { embeddingsField } from "../multimodal/processed-item.ts";
import type { SequenceBatchUpdate } from "../sampling/built-in/added-sequence.ts";
import type { ProcessorChain } from "../sampling/processor-chain.ts";
import type { Sampler } from "../sampling/sampler.ts";
import type { StepLogits } from "../sampling/step-logits.ts";
import type { StepProgress } from "../thread/step-progress.ts";
import type { ChunkEmbeddings, Decoder } from "../decoder/decoder.ts";
import type { EncoderCache } from "../vision/encoder-cache.ts";
import { visitEmbeddings } from "../vision/image-span.ts";
import { InputBatch } from "./input-batch.ts";
import type { EncoderOutput } from "../thread/messages.ts";
import { PromptLogprobs } from "./prompt-logprobs.ts";
import { isLastChunk } from "../scheduler/scheduler-output.ts";
import type { PrefillChunk, SchedulerOutput } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { coverSlots } from "../kv/slot-ranges.ts";
import type { SlotRange } from "../kv/slot-ranges.ts";
import type { StepResult, StepResults } from "./step-results.ts";
import type { VisionEncoder } from "../vision/vision-encoder.ts";

export interface ModelRunnerParts {
  readonly decoder: Decoder;
  /** Null for a text model. */
  readonly visionEncoder: VisionEncoder | null;
  readonly encoderCache: EncoderCache;
  readonly processors: ProcessorChain;
  readonly sampler: Sampler;
  /** The memory in which the sampler expects the logits of each step. */
  readonly logits: StepLogits;
  readonly hiddenSize: number;
  readonly progress: StepProgress;
}

const noLogits = new Float32Array(0);

/** Mutable; holds the persistent batch and owns decoder and encoder. */
export class ModelRunner implements Disposable {
  readonly #parts: ModelRunnerParts;
  readonly #batch = new InputBatch();
  readonly #encoderOutputs: EncoderOutput[] = [];
  readonly #logits: StepLogits;
  readonly #promptLogprobs: PromptLogprobs;

  constructor(parts: ModelRunnerParts) {
    this.#parts = parts;
    this.#logits = parts.logits;
    this.#promptLogprobs = new PromptLogprobs(parts.logits.vocabSize);
  }

  /**
   * Runs one step. A failure stays with the sequences it affects: a failed run with the sequences it computed, a failed
   * logits processor with the rows it served. Only our own bugs are thrown.
   */
  run(scheduled: SchedulerOutput): StepResults {
    const results = new Map<Sequence, StepResult>();
    const decodeRanges = this.#coverDecodes(scheduled.decodes);
    const batchUpdate = this.#updateBatch(scheduled, decodeRanges);
    const { progress } = this.#parts;
    progress.enter("sampling");
    this.#parts.processors.updateState(batchUpdate);
    progress.enter("model");
    for (const transfer of scheduled.transfers) this.#parts.decoder.transfer(transfer);
    for (const chunk of scheduled.prefills) {
      attempt(results, [chunk.sequence], () => this.#prefill(chunk));
    }
    let firstRow = 0;
    for (const range of decodeRanges) {
      const sequences = this.#rowsOf(range);
      attempt(results, sequences, () => this.#parts.decoder.decode(range, sequences, this.#logits, firstRow));
      firstRow += sequences.length;
    }
    progress.enter("sampling");
    this.#sample(results);
    return results;
  }

  /** The encoder outputs since the last call. */
  takeEncoderOutputs(): EncoderOutput[] {
    return this.#encoderOutputs.splice(0);
  }

  [Symbol.dispose](): void {
    this.#parts.decoder[Symbol.dispose]();
    this.#parts.visionEncoder?.[Symbol.dispose]();
  }

  #coverDecodes(decodes: readonly Sequence[]): SlotRange[] {
    const slots = decodes.map(({ kvSlot }) => kvSlot!).sort((left, right) => left - right);
    return coverSlots(slots, this.#parts.decoder.maxSlotsPerRun);
  }

  /**
   * The rows are the sequences that sample in this step. The sequences of each decode range come first, so that the
   * logits of a run are neighbours; prompts that end in this step follow.
   */
  #updateBatch({ decodes, prefills }: SchedulerOutput, decodeRanges: readonly SlotRange[]): SequenceBatchUpdate | null {
    const endedPrompts = prefills.filter(isLastChunk).map(({ sequence }) => sequence);
    this.#batch.replace([...decodes, ...endedPrompts]);
    this.#batch.groupBy(({ isPrefilling, kvSlot }) =>
      isPrefilling ? decodeRanges.length : decodeRanges.findIndex((range) => containsSlot(range, kvSlot!)),
    );
    this.#logits.numRequests = this.#batch.numRows;
    return this.#batch.takeBatchUpdate();
  }

  /** The sequences of the batch that decode in the range, in row order. Their rows are neighbours. */
  #rowsOf(range: SlotRange): Sequence[] {
    return this.#batch.sequences.filter(({ isPrefilling, kvSlot }) => !isPrefilling && containsSlot(range, kvSlot!));
  }

  #prefill(chunk: PrefillChunk): void {
    const { sequence } = chunk;
    this.#encodeImages(chunk.imagesToEncode);
    const lastRow = isLastChunk(chunk) ? this.#logits.row(this.#batch.rowIndexOf(sequence)) : noLogits;
    if (sequence.samplingParams.promptLogprobs === null) return this.#computeTokens(chunk, lastRow);
    for (const piece of this.#promptLogprobs.piecesOf(chunk)) {
      const logits = this.#promptLogprobs.logitsFor(piece);
      this.#computeTokens(piece, logits);
      this.#promptLogprobs.read(piece, logits);
      if (isLastChunk(piece)) lastRow.set(logits.subarray(-lastRow.length));
    }
  }

  /** `logits`: see `Decoder.prefill`. */
  #computeTokens(chunk: PrefillChunk, logits: Float32Array): void {
    const { sequence, firstToken, numTokens } = chunk;
    this.#parts.decoder.prefill(sequence, firstToken, firstToken + numTokens, this.#gatherEmbeddings(chunk), logits);
  }

  /** If two prompts of this step share an image, both list it and it is encoded once. */
  #encodeImages(images: readonly ImageFeature[]): void {
    const { encoderCache, visionEncoder, hiddenSize } = this.#parts;
    for (const image of images) {
      const { mmHash, tensors } = image;
      if (encoderCache.has(mmHash)) continue;
      invariant(visionEncoder !== null, "an image reached a model without a vision encoder");
      const data = visionEncoder.encode(image);
      encoderCache.store(mmHash, data);
      if (tensors.has(embeddingsField)) continue;
      const shape = [data.length / hiddenSize, hiddenSize];
      this.#encoderOutputs.push({ mmHash, embeddings: { elementType: "float32", shape, data } });
    }
  }

  #gatherEmbeddings({ sequence, firstToken, numTokens }: PrefillChunk): ChunkEmbeddings {
    const { encoderCache, hiddenSize } = this.#parts;
    const endToken = firstToken + numTokens;
    const positions: bigint[] = [];
    const rows: Float32Array[] = [];
    for (const image of sequence.images.slice(sequence.firstHeldImage, sequence.endHeldImage)) {
      const embeddings = encoderCache.get(image.mmHash);
      visitEmbeddings(image, firstToken, endToken, (token, embeddingRow) => {
        positions.push(BigInt(token - firstToken));
        rows.push(embeddings.subarray(embeddingRow * hiddenSize, (embeddingRow + 1) * hiddenSize));
      });
    }
    const gathered = new Float32Array(rows.length * hiddenSize);
    rows.forEach((row, index) => gathered.set(row, index * hiddenSize));
    return { embeddings: gathered, positions: BigInt64Array.from(positions) };
  }

  #sample(results: Map<Sequence, StepResult>): void {
    const { sequences } = this.#batch;
    if (sequences.length === 0) return;
    const sampled = this.#parts.sampler.sample(sequences);
    sequences.forEach((sequence, rowIndex) => {
      if (results.has(sequence)) return;
      const row = sampled[rowIndex];
      const result = row.kind === "sampled" ? { ...row, promptLogprobs: this.#promptLogprobs.take(sequence) } : row;
      results.set(sequence, result);
    });
  }
}

function containsSlot({ firstSlot, numSlots }: SlotRange, slot: number): boolean {
  return slot >= firstSlot && slot < firstSlot + numSlots;
}

/** Runs `action`. If it throws, the error becomes the result of those `sequences` that have no result yet. */
function attempt(results: Map<Sequence, StepResult>, sequences: readonly Sequence[], action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof EngineError) || error.code === "internal") throw error;
    for (const sequence of sequences) if (!results.has(sequence)) results.set(sequence, { kind: "failed", error });
  }
}
