/** Restricts every row with a structured output to its grammar. Runs before anything else reads the logits. */
import type { EngineConfig } from "../contract/config.ts";
import type { EngineError } from "../contract/errors.ts";
import { LogitsProcessor } from "../sampling/contract/logits-processor.ts";
import type { AddedRequest, BatchUpdate, Logits } from "../sampling/contract/logits-processor.ts";
import { RowStates } from "../sampling/contract/row-states.ts";
import type { CompiledGrammar } from "./compiled-grammar.ts";
import { GrammarRow } from "./grammar-row.ts";
import { LoadedGrammars } from "./loaded-grammars.ts";
import { createTokenBitmask, maskRow } from "./token-bitmask.ts";
import type { TokenBitmask } from "./token-bitmask.ts";

export interface GrammarLogitsProcessorOptions {
  /** Length of a row of logits. */
  readonly vocabSize: number;
  /** The grammar of a request, or null. */
  readonly grammarOf: (request: AddedRequest) => CompiledGrammar | null;
}

/**
 * A request that resumes after a preemption is followed from its first token again. Failures of a row are not thrown:
 * its logits become -Infinity, which leaves the sampler no token, and `failureOf` gives the reason.
 */
export class GrammarLogitsProcessor extends LogitsProcessor {
  readonly #grammarOf: GrammarLogitsProcessorOptions["grammarOf"];
  readonly #grammars = new LoadedGrammars();
  readonly #rows = new RowStates<GrammarRow>();
  /** Rows whose grammars are not released yet: rows leave the batch without notice. */
  readonly #liveRows = new Map<GrammarRow, CompiledGrammar>();
  /** For the current row; see `TokenBitmask`. */
  readonly #bitmask: TokenBitmask;

  constructor(config: EngineConfig, options: GrammarLogitsProcessorOptions) {
    super(config, config.device, {});
    this.#grammarOf = options.grammarOf;
    this.#bitmask = createTokenBitmask(options.vocabSize);
  }

  get isInUse(): boolean {
    return this.#rows.size > 0;
  }

  readsRow(rowIndex: number): boolean {
    return this.#rows.get(rowIndex) !== undefined;
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.#rows.update(batchUpdate, (request) => this.#createRow(request));
    if (batchUpdate !== null && this.#liveRows.size > 0) this.#releaseGoneRows();
    for (const [, row] of this.#rows.entries()) row.acceptNewTokens();
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, row] of this.#rows.entries()) {
      row.fillBitmask(this.#bitmask);
      maskRow(logits.row(rowIndex), this.#bitmask);
    }
    return logits;
  }

  /** Why no token of the row is allowed; null if its grammar works. Valid for the batch of the last `updateState`. */
  failureOf(rowIndex: number): EngineError | null {
    return this.#rows.get(rowIndex)?.failure ?? null;
  }

  /** Whether the grammar of the row, if it has one, allows the token in this step. */
  allows(rowIndex: number, tokenId: number): boolean {
    return this.#rows.get(rowIndex)?.allows(tokenId) ?? true;
  }

  /**
   * Why the token drawn for the row must not follow its text, or null. A processor after the grammars may have allowed
   * it again.
   */
  failureWith(rowIndex: number, tokenId: number, processorNames: readonly string[]): EngineError | null {
    const row = this.#rows.get(rowIndex);
    row?.checkChosen(tokenId, processorNames);
    return row?.failure ?? null;
  }

  #createRow(request: AddedRequest): GrammarRow | undefined {
    const grammar = this.#grammarOf(request);
    if (grammar === null) return undefined;
    const row = new GrammarRow(this.#grammars.open(grammar), grammar, request.outputTokenIds);
    this.#liveRows.set(row, grammar);
    return row;
  }

  #releaseGoneRows(): void {
    const present = new Set(Array.from(this.#rows.entries(), ([, row]) => row));
    for (const [row, grammar] of this.#liveRows) {
      if (present.has(row)) continue;
      this.#grammars.release(grammar);
      this.#liveRows.delete(row);
    }
  }
}
