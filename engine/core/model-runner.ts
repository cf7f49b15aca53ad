/** Runs the scheduler's output: has images encoded, computes prompt chunks and newest tokens, samples the next tokens. */
import { EngineError } from "../contract/errors.ts";
import type { SampledLogprobs } from "../contract/request-output.ts";
import { noEmbeddings } from "../decoder/decoder.ts";
import type { Decoder, DecoderRun, TokenSpan } from "../decoder/decoder.ts";
import type { ProcessorChain } from "../sampling/processor-chain.ts";
import type { SampledRow, SamplingRow } from "../sampling/sampler.ts";
import type { StepLogits } from "../sampling/step-logits.ts";
import { isLastChunk } from "../scheduler/scheduler-output.ts";
import type { PrefillChunk, SchedulerOutput } from "../scheduler/scheduler-output.ts";
import type { Draft, Sequence } from "../scheduler/sequence.ts";
import type { FailedRun } from "../scheduler/step-limit.ts";
import type { ImageRuns } from "../scheduler/whole-images.ts";
import type { StepProgress } from "../thread/step-progress.ts";
import type { BackgroundEncoder } from "../vision/background-encoder.ts";
import { EmbeddingCopies } from "../vision/embedding-copies.ts";
import type { EncoderCache } from "../vision/encoder-cache.ts";
import type { VisionEncoder } from "../vision/vision-encoder.ts";
import { DraftLogits } from "./draft-logits.ts";
import type { ImageFeature } from "./engine-request.ts";
import { InputBatch } from "./input-batch.ts";
import { pooled, type PooledRow } from "./pooler.ts";
import { PromptLogprobs } from "./prompt-logprobs.ts";
import { PromptStates } from "./prompt-states.ts";
import { StepImages } from "./step-images.ts";
import type { StepResult, StepResults } from "./step-results.ts";

export interface ModelRunnerParts {
  readonly decoder: Decoder;
  /** Encodes images within the steps. Null for a text model, and if `backgroundEncoder` does it. */
  readonly visionEncoder: VisionEncoder | null;
  /** Encodes images beside the steps; null if they are encoded within. */
  readonly backgroundEncoder: BackgroundEncoder | null;
  readonly encoderCache: EncoderCache;
  readonly processors: ProcessorChain;
  readonly sampler: RowReader;
  /** The memory in which the sampler expects the logits of each step. */
  readonly logits: StepLogits;
  /** Size of an image embedding. */
  readonly imageWidth: number;
  /** See `DecoderShape`. */
  readonly imageRuns: ImageRuns;
  readonly progress: StepProgress;
}

/** Turns the rows of a step into results: the sampler, or the pooler. */
export interface RowReader {
  /** @param rows The sequences of the rows, in order. */
  sample(rows: readonly SamplingRow[]): readonly (SampledRow | PooledRow)[];
}

/** Mutable; holds the persistent batch and owns decoder and encoder. */
export class ModelRunner implements Disposable {
  readonly #parts: ModelRunnerParts;
  readonly #batch = new InputBatch();
  readonly #logits: StepLogits;
  readonly #promptLogprobs: PromptLogprobs;
  readonly #promptStates: PromptStates;
  readonly #copies: EmbeddingCopies;
  readonly #images: StepImages;
  /** Null until the first draft. */
  #draftLogits: DraftLogits | null = null;

  constructor(parts: ModelRunnerParts) {
    this.#parts = parts;
    this.#logits = parts.logits;
    this.#promptStates = new PromptStates(parts.logits.vocabSize);
    this.#promptLogprobs = new PromptLogprobs(parts.logits.vocabSize, parts.imageRuns);
    const pool = parts.decoder.featurePool ?? null;
    this.#copies = new EmbeddingCopies({ ...parts, pool });
    this.#images = new StepImages({ ...parts, pool });
  }

  /** The image that is encoded beside the steps; null if there is none. */
  get imageUnderWay(): ImageFeature | null {
    return this.#parts.backgroundEncoder?.current ?? null;
  }

  /** Resolves when no image is encoded beside the steps any more. */
  get encodingEnded(): Promise<void> {
    return this.#parts.backgroundEncoder?.ended ?? Promise.resolve();
  }

  /** Ends the encoding beside the steps. The image has no result. */
  cancelEncoding(): void {
    this.#parts.backgroundEncoder?.cancel();
  }

  /**
   * Begins a step: makes the image that was encoded since the last one available to it. Returns an image that could not be
   * encoded. Only bugs in Fovea and `device_lost` are thrown.
   */
  collectEncoded(): { readonly image: ImageFeature; readonly error: EngineError } | null {
    this.#images.forgetEncoded();
    const result = this.#parts.backgroundEncoder?.takeResult() ?? null;
    if (result === null) return null;
    if (result.kind === "encoded") {
      this.#images.storeLate(result.image, result.embeddings);
      return null;
    }
    if (!isRuntimeError(result.error)) throw result.error;
    return { image: result.image, error: result.error };
  }

  /**
   * Runs one step. A failure stays with the sequences it affects: a failed image or run with the sequences it serves, a
   * failed logits processor with its rows. A run without memory for it is reported with its size. Only bugs in Fovea and
   * `device_lost` are thrown.
   *
   * @param admitLate Returns the step with the prompts that have arrived since it began. Called once between decodes and
   *   prompts, if they run apart.
   */
  run(scheduled: SchedulerOutput, admitLate: () => SchedulerOutput): StepResults {
    const results = new Map<Sequence, StepResult>();
    const { decoder, progress } = this.#parts;
    this.#draftLogits?.releaseEnded();
    progress.enter("model");
    this.#startEncoding(scheduled);
    this.#transfer(scheduled);
    if (decoder.runsPromptsApart && scheduled.decodes.length > 0) {
      const rows = this.#computeDecodes(scheduled, results);
      const late = admitLate();
      this.#startEncoding(late);
      this.#transfer(late);
      const runs = this.#planRuns([], this.#encodeImagesOf(late, results));
      this.#updateBatch(rows, runs);
      this.#computeRuns(runs, rows.length, results);
    } else {
      const runs = this.#planRuns(scheduled.decodes, this.#encodeImagesOf(scheduled, results));
      this.#updateBatch([], runs);
      this.#computeRuns(runs, 0, results);
    }
    progress.enter("sampling");
    this.#sample(results);
    // Grammars and processors have seen a row without logits. They begin again when the sequence comes back.
    for (const [sequence, { kind }] of results) {
      if (kind === "out_of_memory" && this.#batch.has(sequence)) this.#batch.remove(sequence);
    }
    return results;
  }

  /** Copies of encoder outputs, for caches outside of the thread. */
  get copies(): EmbeddingCopies {
    return this.#copies;
  }

  /** Begins to copy the encoder outputs of the last step. Call it after the outputs of the step have been sent. */
  copyEncoderOutputs(): void {
    for (const { mmHash, embeddings } of this.#images.takeEncoded()) this.#copies.add(mmHash, embeddings);
  }

  [Symbol.dispose](): void {
    this.#parts.decoder[Symbol.dispose]();
    this.#parts.visionEncoder?.[Symbol.dispose]();
    this.#parts.backgroundEncoder?.[Symbol.dispose]();
  }

  #transfer({ transfers }: SchedulerOutput): void {
    for (const transfer of transfers) this.#parts.decoder.transfer(transfer);
  }

  #startEncoding({ awaitedImage }: SchedulerOutput): void {
    if (awaitedImage !== null) this.#parts.backgroundEncoder?.tryStart(awaitedImage);
  }

  /** Returns the chunks whose images are encoded. */
  #encodeImagesOf({ prefills }: SchedulerOutput, results: Map<Sequence, StepResult>): readonly PrefillChunk[] {
    for (const { sequence, imagesToEncode } of prefills) {
      attempt(results, [sequence], () => this.#images.encode(imagesToEncode));
    }
    return prefills.filter(({ sequence }) => !results.has(sequence));
  }

  #planRuns(decodes: readonly Sequence[], chunks: readonly PrefillChunk[]): readonly DecoderRun[] {
    return [
      ...this.#parts.decoder.planRuns(
        decodes.filter((sequence) => !hasDraft(sequence)),
        chunks.filter(isPlain),
      ),
      ...runsOfDrafts(decodes),
      ...chunks.filter((chunk) => !isPlain(chunk)).map((chunk) => ({ decodes: [], chunks: [chunk] })),
    ];
  }

  /** Returns the sequences in the order of their rows, which are the first ones of the step. */
  #computeDecodes({ decodes, prefills }: SchedulerOutput, results: Map<Sequence, StepResult>): readonly Sequence[] {
    const runs = [
      ...this.#parts.decoder
        .planRuns(
          decodes.filter((sequence) => !hasDraft(sequence)),
          prefills,
        )
        .filter((run) => run.decodes.length > 0),
      ...runsOfDrafts(decodes),
    ];
    const rows = this.#batch.plan(decodes, runIndexOf(runs));
    let firstRow = 0;
    for (const run of runs) {
      const endRow = firstRow + run.decodes.length;
      this.#compute(run, rows.slice(firstRow, endRow), firstRow, results);
      firstRow = endRow;
    }
    return rows;
  }

  /**
   * The rows are the sequences that sample in this step: `firstRows` in their order, then those of the runs. Those of each
   * run are neighbours, in the order of the runs, so that a run writes its logits where the sampler reads them.
   */
  #updateBatch(firstRows: readonly Sequence[], runs: readonly DecoderRun[]): void {
    const { processors, progress } = this.#parts;
    const order = new Map(firstRows.map((sequence, rowIndex) => [sequence, rowIndex]));
    runs.forEach((run, index) => {
      for (const sequence of samplingSequencesOf(run)) order.set(sequence, firstRows.length + index);
    });
    this.#batch.replace([...order.keys()]);
    this.#batch.groupBy((sequence) => order.get(sequence)!);
    this.#logits.numRequests = this.#batch.numRows;
    progress.enter("sampling");
    processors.updateState(this.#batch.takeBatchUpdate());
    progress.enter("model");
  }

  #computeRuns(runs: readonly DecoderRun[], numRowsBefore: number, results: Map<Sequence, StepResult>): void {
    let firstRow = numRowsBefore;
    for (const run of runs) {
      const numRows = samplingSequencesOf(run).length;
      this.#compute(run, this.#batch.sequences.slice(firstRow, firstRow + numRows), firstRow, results);
      firstRow += numRows;
    }
  }

  /** @param rows The sequences of the run that sample, in the order of their rows. */
  #compute(run: DecoderRun, rows: readonly Sequence[], firstRow: number, results: Map<Sequence, StepResult>): void {
    const [chunk] = run.chunks;
    if (chunk !== undefined && !isPlain(chunk)) {
      const run = { numTokens: chunk.numTokens, numSequences: 1 };
      return this.#attemptRun(results, [chunk.sequence], run, () => this.#computePromptRows(chunk));
    }
    const [decode] = run.decodes;
    if (decode !== undefined && hasDraft(decode)) {
      const size = { numTokens: decode.draft.tokenIds.length + 1, numSequences: 1 };
      return this.#attemptRun(results, [decode], size, () => this.#computeWithDraft(decode, firstRow));
    }
    const chunks = new Map(run.chunks.map((each) => [each.sequence, each]));
    const spans = rows.map((sequence) => {
      const ended = chunks.get(sequence);
      chunks.delete(sequence);
      return ended === undefined ? newestToken(sequence) : this.#spanOf(ended, 1);
    });
    for (const unended of chunks.values()) spans.push(this.#spanOf(unended, 0));
    this.#computeSpans(spans, firstRow, results);
  }

  /**
   * A run that fails is repeated for each sequence alone, so that only those fail that cannot be computed. A run that
   * cannot be repeated has no images and only tokens of our own, so its failure is no sequence's fault: all of it fails.
   * A run without memory is not repeated, because the next step would fail in the same way.
   */
  #computeSpans(spans: readonly TokenSpan[], firstRow: number, results: Map<Sequence, StepResult>): void {
    const { decoder } = this.#parts;
    const numRows = spans.reduce((sum, { numLogits }) => sum + numLogits, 0);
    const target = { rows: this.#logits.rowsFrom(firstRow, numRows), step: { logits: this.#logits, firstRow } };
    const sequences = spans.map(({ sequence }) => sequence);
    const numTokens = spans.reduce((sum, { firstToken, endToken }) => sum + endToken - firstToken, 0);
    const size = { numTokens, numSequences: spans.length };
    if (spans.length === 1 || !decoder.canRepeat) {
      return this.#attemptRun(results, sequences, size, () => decoder.compute(spans, target));
    }
    try {
      decoder.compute(spans, target);
    } catch (error) {
      if (!isRuntimeError(error)) throw error;
      if (error.code === "out_of_memory") return this.#reportNoMemory(results, sequences, size, error);
      let row = firstRow;
      for (const span of spans) {
        this.#computeSpans([span], row, results);
        row += span.numLogits;
      }
    }
  }

  #attemptRun(
    results: Map<Sequence, StepResult>,
    sequences: readonly Sequence[],
    run: FailedRun,
    action: () => void,
  ): void {
    attempt(results, sequences, () => {
      try {
        action();
      } catch (error) {
        if (!isRuntimeError(error) || error.code !== "out_of_memory") throw error;
        this.#reportNoMemory(results, sequences, run, error);
      }
    });
  }

  #reportNoMemory(
    results: Map<Sequence, StepResult>,
    sequences: readonly Sequence[],
    run: FailedRun,
    error: EngineError,
  ): void {
    const keepsTokens = this.#parts.decoder.canRepeat;
    for (const sequence of sequences) results.set(sequence, { kind: "out_of_memory", error, run, keepsTokens });
  }

  #computePromptRows(chunk: PrefillChunk): void {
    const { vocabSize: width } = this.#logits;
    const promptRows = chunk.sequence.poolsTokens ? this.#promptStates : this.#promptLogprobs;
    for (const piece of promptRows.piecesOf(chunk)) {
      const { numRows, numTokensBehind } = piece;
      const rows = promptRows.rowsFor(piece);
      const span = { ...this.#spanOf(piece, numRows), numTokensBehind };
      this.#parts.decoder.compute([span], { rows, step: null });
      promptRows.read(piece, rows);
      if (!isLastChunk(piece) || numTokensBehind > 0) continue;
      this.#logits.row(this.#batch.rowIndexOf(piece.sequence)).set(rows.subarray(-width));
    }
  }

  /**
   * A step samples one token of each sequence, also of one with a draft: the run that checks the draft computes the logits
   * after all of its tokens, and later steps take their rows for as long as the sampled tokens are those of the draft.
   */
  #computeWithDraft(sequence: DraftedSequence, rowIndex: number): void {
    const { draft } = sequence;
    this.#draftLogits ??= new DraftLogits(this.#logits.vocabSize);
    let row = this.#draftLogits.rowAfterNewest(sequence);
    if (row === null) {
      const rows = this.#draftLogits.rowsFor(sequence, draft);
      const numLogits = draft.tokenIds.length + 1;
      const endToken = draft.firstToken + draft.tokenIds.length;
      const span = { ...newestToken(sequence), endToken, numLogits, draftTokenIds: draft.tokenIds };
      this.#parts.decoder.compute([span], { rows, step: null });
      row = rows.subarray(0, this.#logits.vocabSize);
    }
    this.#logits.rowsFrom(rowIndex, 1).set(row);
  }

  #spanOf(chunk: PrefillChunk, numLogits: number): TokenSpan {
    const { sequence, firstToken, numTokens } = chunk;
    const embeddings = sequence.images.length === 0 ? noEmbeddings : this.#images.embeddingsOf(chunk);
    return { sequence, firstToken, endToken: firstToken + numTokens, numLogits, embeddings };
  }

  #sample(results: Map<Sequence, StepResult>): void {
    const { sequences } = this.#batch;
    if (sequences.length === 0) return;
    const sampled = this.#parts.sampler.sample(sequences);
    sequences.forEach((sequence, rowIndex) => {
      if (results.has(sequence)) return;
      const row = sampled[rowIndex]!;
      results.set(sequence, this.#resultOf(sequence, row));
    });
  }

  #resultOf(sequence: Sequence, row: SampledRow | PooledRow): StepResult {
    if (row.kind === "sampled") return { ...row, promptLogprobs: this.#takeLogprobs(sequence) };
    return sequence.poolsTokens ? pooled(this.#promptStates.take(sequence)) : row;
  }

  /** See `PromptLogprobs.take`. */
  #takeLogprobs(sequence: Sequence): SampledLogprobs[] | null {
    return sequence.samplingParams.promptLogprobs === null ? null : this.#promptLogprobs.take(sequence);
  }
}

/** Whether the chunk can run together with others, because it takes no rows but the last. */
function isPlain({ sequence }: PrefillChunk): boolean {
  return !sequence.poolsTokens && !sequence.needsPromptLogprobs;
}

type DraftedSequence = Sequence & { readonly draft: Draft };

function hasDraft(sequence: Sequence): sequence is DraftedSequence {
  return sequence.draft !== null;
}

function runsOfDrafts(decodes: readonly Sequence[]): DecoderRun[] {
  return decodes.filter(hasDraft).map((sequence) => ({ decodes: [sequence], chunks: [] }));
}

function newestToken(sequence: Sequence): TokenSpan {
  const firstToken = sequence.numComputedTokens;
  return { sequence, firstToken, endToken: firstToken + 1, numLogits: 1, embeddings: noEmbeddings };
}

function runIndexOf(runs: readonly DecoderRun[]): (sequence: Sequence) => number {
  const indexes = new Map(runs.flatMap(({ decodes }, index) => decodes.map((sequence) => [sequence, index] as const)));
  return (sequence) => indexes.get(sequence)!;
}

function samplingSequencesOf({ decodes, chunks }: DecoderRun): Sequence[] {
  return [...decodes, ...chunks.filter(isLastChunk).map(({ sequence }) => sequence)];
}

/** Runs `action`. If it throws, the error becomes the result of those `sequences` that have no result yet. */
function attempt(results: Map<Sequence, StepResult>, sequences: readonly Sequence[], action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!isRuntimeError(error)) throw error;
    for (const sequence of sequences) if (!results.has(sequence)) results.set(sequence, { kind: "failed", error });
  }
}

/** Any error except bugs in Fovea and `device_lost`, which affects all sequences. */
function isRuntimeError(error: unknown): error is EngineError {
  return error instanceof EngineError && error.code !== "internal" && error.code !== "device_lost";
}
