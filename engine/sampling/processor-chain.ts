/** The engine's logits processors in the order they apply, and what happens when one of them throws. */
import { EngineError } from "../errors.ts";
import type { BatchUpdate, LogitsProcessor } from "./logits-processor.ts";
import type { StepLogits } from "./step-logits.ts";

export interface NamedProcessor {
  /** As the setting spells it; part of error messages. */
  readonly name: string;
  readonly processor: LogitsProcessor;
}

/** Built-ins first, then custom ones in the order loaded; fixed for the engine's life. */
export class ProcessorChain {
  readonly #all: readonly NamedProcessor[];
  /** May change the most likely token; applied to raw logits. */
  readonly #argmaxChanging: readonly NamedProcessor[];
  /** Applied after the temperature, and not at all when the whole batch is greedy. */
  readonly #argmaxInvariant: readonly NamedProcessor[];

  constructor(processors: readonly NamedProcessor[]) {
    this.#all = processors;
    this.#argmaxInvariant = processors.filter(({ processor }) => processor.isArgmaxInvariant());
    this.#argmaxChanging = processors.filter((named) => !this.#argmaxInvariant.includes(named));
  }

  /**
   * Tells every processor, also after one has thrown, so that none loses track of the rows. Throws the first failure
   * as EngineError `logits_processor_failed` with the processor's name.
   */
  updateState(batchUpdate: BatchUpdate | null): void {
    let firstFailure: EngineError | null = null;
    for (const { name, processor } of this.#all) {
      try {
        processor.updateState(batchUpdate);
      } catch (cause) {
        firstFailure ??= processorFailure(name, cause);
      }
    }
    if (firstFailure !== null) throw firstFailure;
  }

  /** Throws EngineError `logits_processor_failed`; rows may then be half edited. */
  applyArgmaxChanging(logits: StepLogits): void {
    for (const named of this.#argmaxChanging) applyProcessor(named, logits);
  }

  hasActiveArgmaxInvariant(): boolean {
    return this.#argmaxInvariant.some(isActive);
  }

  /** Throws EngineError `logits_processor_failed`; rows may then be half edited. */
  applyArgmaxInvariant(logits: StepLogits): void {
    for (const named of this.#argmaxInvariant) applyProcessor(named, logits);
  }
}

function isActive({ name, processor }: NamedProcessor): boolean {
  try {
    return processor.isActive();
  } catch (cause) {
    throw processorFailure(name, cause);
  }
}

function applyProcessor(named: NamedProcessor, logits: StepLogits): void {
  if (!isActive(named)) return;
  let returned: unknown;
  try {
    returned = named.processor.apply(logits);
  } catch (cause) {
    throw processorFailure(named.name, cause);
  }
  if (returned === logits || returned === logits.data) return;
  const data = returned instanceof Float32Array ? returned : dataOf(returned);
  if (data === null || data.length !== logits.data.length) {
    const got = data === null ? String(returned) : `${data.length} values`;
    const { numRequests, vocabSize } = logits;
    const expected = `logits of ${numRequests} x ${vocabSize} values`;
    throw processorFailure(named.name, new TypeError(`apply() must return ${expected}, got ${got}`));
  }
  logits.data.set(data);
}

function dataOf(returned: unknown): Float32Array | null {
  const isLogits = typeof returned === "object" && returned !== null && "data" in returned;
  return isLogits && returned.data instanceof Float32Array ? returned.data : null;
}

function processorFailure(name: string, cause: unknown): EngineError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new EngineError("logits_processor_failed", `The logits processor ${name} failed: ${reason}`, { cause });
}
