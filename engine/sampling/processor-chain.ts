/** The engine's logits processors in the order of application. */
import type { EngineError } from "../contract/errors.ts";
import { StepProgress } from "../thread/step-progress.ts";
import type { AddedSequence, SequenceBatchUpdate } from "./built-in/added-sequence.ts";
import type { LogitsProcessor } from "./contract/logits-processor.ts";
import type { CustomProcessor, RowErrors } from "./custom/custom-processor.ts";
import { ShownBatch } from "./custom/shown-batch.ts";
import type { GuardedLogits } from "./guarded-logits.ts";

/** A processor of the engine's own, which few requests use. */
export interface BuiltInProcessor extends LogitsProcessor {
  /** Whether a row uses it, as of the last update. */
  readonly isInUse: boolean;
  /** Whether `apply` is going to read the row, as of the last update. */
  readsRow(rowIndex: number): boolean;
}

/** Masks tokens that a grammar forbids. Never throws for a row but leaves it no token. */
export interface GrammarProcessor extends BuiltInProcessor {
  /** Whether the token may come next; true for a row without a grammar. */
  allows(rowIndex: number, tokenId: number): boolean;
  /** The reason, or null while the row's grammar works. */
  failureOf(rowIndex: number): EngineError | null;
  /** Why the grammar forbids the token drawn for the row after these custom processors had it, or null. */
  failureWith(rowIndex: number, tokenId: number, processorNames: readonly string[]): EngineError | null;
}

/** The engine's own processors by stage. An error thrown by one is a bug. */
export interface BuiltInProcessors {
  /** Before everything else, including raw logprobs. */
  readonly grammars: OptionalProcessor<GrammarProcessor>;
  /** Before custom processors; they may change the most likely token. */
  readonly argmaxChanging: readonly OptionalProcessor[];
  /** After custom processors, before the greedy choice. */
  readonly afterCustom: readonly OptionalProcessor[];
  /** After the temperature, before custom processors that are argmax-invariant. */
  readonly argmaxInvariant: readonly OptionalProcessor[];
}

/** Mutable. Skips a built-in processor while no row of the batch uses it. */
export class OptionalProcessor<Processor extends BuiltInProcessor = BuiltInProcessor> {
  readonly #processor: Processor;
  readonly #mayUse: (request: AddedSequence) => boolean;
  #inUse: Processor | null = null;

  /** @param mayUse Returns true for every row that uses the processor. */
  constructor(processor: Processor, mayUse: (request: AddedSequence) => boolean) {
    this.#processor = processor;
    this.#mayUse = mayUse;
  }

  /** The processor; null while no row uses it. */
  get inUse(): Processor | null {
    return this.#inUse;
  }

  updateState(batchUpdate: SequenceBatchUpdate | null): void {
    if (this.#inUse === null && batchUpdate?.added.some(this.#mayUse) !== true) return;
    this.#processor.updateState(batchUpdate);
    this.#inUse = this.#processor.isInUse ? this.#processor : null;
  }

  apply(logits: GuardedLogits): void {
    this.#inUse?.apply(logits);
  }
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

  /** Starts a step: updates every processor that a row uses, even after one has failed, so that all keep track of the rows. */
  updateState(batchUpdate: SequenceBatchUpdate | null): void {
    const { grammars, argmaxChanging, afterCustom, argmaxInvariant } = this.#builtIns;
    this.#errors.clear();
    grammars.updateState(batchUpdate);
    for (const processor of argmaxChanging) processor.updateState(batchUpdate);
    for (const processor of argmaxInvariant) processor.updateState(batchUpdate);
    this.#updateCustom(batchUpdate);
    for (const processor of afterCustom) processor.updateState(batchUpdate);
  }

  /** Whether a built-in processor reads the row before the greedy choice. Custom processors may read any row. */
  readsRow(rowIndex: number): boolean {
    const { grammars, argmaxChanging, afterCustom } = this.#builtIns;
    if (grammars.inUse?.readsRow(rowIndex) === true) return true;
    for (const { inUse } of argmaxChanging) if (inUse?.readsRow(rowIndex) === true) return true;
    for (const { inUse } of afterCustom) if (inUse?.readsRow(rowIndex) === true) return true;
    return false;
  }

  applyGrammars(logits: GuardedLogits): void {
    this.#builtIns.grammars.apply(logits);
  }

  /** Whether custom processors see the logits of every row. */
  get hasCustom(): boolean {
    return this.#custom.length > 0;
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
    for (const processor of this.#builtIns.afterCustom) processor.apply(logits);
  }

  applyArgmaxInvariant(logits: GuardedLogits): void {
    for (const processor of this.#builtIns.argmaxInvariant) processor.apply(logits);
    this.#applyCustom(true, logits);
  }

  #applyCustom(isArgmaxInvariant: boolean, logits: GuardedLogits): void {
    if (this.#custom.length === 0) return;
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
    return this.#errors.get(rowIndex) ?? this.#builtIns.grammars.inUse?.failureOf(rowIndex) ?? null;
  }

  /**
   * Why the token drawn for the row must not be its next: its grammar forbids it. Null if it may.
   *
   * @param logits Know the custom processors that had the row, for the error.
   */
  errorWith(rowIndex: number, tokenId: number, logits: Pick<GuardedLogits, "askersOf">): EngineError | null {
    return this.#builtIns.grammars.inUse?.failureWith(rowIndex, tokenId, logits.askersOf(rowIndex)) ?? null;
  }
}
