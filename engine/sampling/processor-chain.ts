/** The engine's logits processors in the order of application. */
import type { EngineError } from "../contract/errors.ts";
import { StepProgress } from "../thread/step-progress.ts";
import type { SequenceBatchUpdate } from "./built-in/added-sequence.ts";
import type { LogitsProcessor } from "./contract/logits-processor.ts";
import type { CustomProcessor, RowErrors } from "./custom/custom-processor.ts";
import { ShownBatch } from "./custom/shown-batch.ts";
import type { GuardedLogits } from "./guarded-logits.ts";

/** Masks tokens that a grammar forbids. Never throws for a row but leaves it no token. */
export interface GrammarProcessor extends LogitsProcessor {
  /** The reason, or null while the row's grammar works. */
  failureOf(rowIndex: number): EngineError | null;
  /** Why the grammar forbids the token drawn for the row, or null. */
  failureWith(rowIndex: number, tokenId: number): EngineError | null;
}

/** The engine's own processors by stage. An error thrown by one is a bug. */
export interface BuiltInProcessors {
  /** Before everything else, including raw logprobs. */
  readonly grammars: GrammarProcessor;
  /** Before custom processors; they may change the most likely token. */
  readonly argmaxChanging: readonly LogitsProcessor[];
  /** After custom processors. */
  readonly penalties: readonly LogitsProcessor[];
  /** After the temperature, before custom processors that are argmax-invariant. */
  readonly argmaxInvariant: readonly LogitsProcessor[];
}

/** Mutable: stores the errors of one step. The set of processors is fixed. */
export class ProcessorChain {
  readonly #builtIns: BuiltInProcessors;
  /** In loading order. */
  readonly #custom: readonly CustomProcessor[];
  /** The batch as shown to custom processors. */
  readonly #shown = new ShownBatch();
  readonly #errors: RowErrors = new Map();
  readonly #progress: StepProgress;

  /** @param progress Records which custom processor's code is running. */
  constructor(
    builtIns: BuiltInProcessors,
    custom: readonly CustomProcessor[],
    progress: StepProgress = new StepProgress(),
  ) {
    this.#builtIns = builtIns;
    this.#custom = custom;
    this.#progress = progress;
  }

  /** Starts a step: updates every processor, even after one has failed, so that all keep track of the rows. */
  updateState(batchUpdate: SequenceBatchUpdate | null): void {
    const { grammars, argmaxChanging, penalties, argmaxInvariant } = this.#builtIns;
    this.#errors.clear();
    grammars.updateState(batchUpdate);
    for (const processor of argmaxChanging) processor.updateState(batchUpdate);
    for (const processor of argmaxInvariant) processor.updateState(batchUpdate);
    this.#updateCustom(batchUpdate);
    for (const processor of penalties) processor.updateState(batchUpdate);
  }

  applyGrammars(logits: GuardedLogits): void {
    this.#builtIns.grammars.apply(logits);
  }

  #updateCustom(batchUpdate: SequenceBatchUpdate | null): void {
    if (this.#custom.length === 0) return;
    const shownUpdate = this.#shown.update(batchUpdate);
    for (let index = 0; index < this.#custom.length; index++) {
      this.#progress.enterProcessor(index);
      this.#custom[index]!.updateState(shownUpdate, this.#errors);
    }
    this.#progress.enter("sampling");
  }

  applyArgmaxChanging(logits: GuardedLogits): void {
    for (const processor of this.#builtIns.argmaxChanging) processor.apply(logits);
    this.#applyCustom(false, logits);
    for (const processor of this.#builtIns.penalties) processor.apply(logits);
  }

  applyArgmaxInvariant(logits: GuardedLogits): void {
    for (const processor of this.#builtIns.argmaxInvariant) processor.apply(logits);
    this.#applyCustom(true, logits);
  }

  #applyCustom(isArgmaxInvariant: boolean, logits: GuardedLogits): void {
    for (let index = 0; index < this.#custom.length; index++) {
      const processor = this.#custom[index]!;
      if (processor.isArgmaxInvariant !== isArgmaxInvariant) continue;
      this.#progress.enterProcessor(index);
      processor.apply(logits, this.#shown.rows, this.#errors);
    }
    this.#progress.enter("sampling");
  }

  /**
   * Why the row gets no token in this step: a custom processor (`logits_processor_failed`) or its grammar failed; null
   * if neither did.
   */
  errorOf(rowIndex: number): EngineError | null {
    return this.#errors.get(rowIndex) ?? this.#builtIns.grammars.failureOf(rowIndex);
  }

  /** Why the token drawn for the row must not be its next: its grammar forbids it. Null if it may. */
  errorWith(rowIndex: number, tokenId: number): EngineError | null {
    return this.#builtIns.grammars.failureWith(rowIndex, tokenId);
  }
}
