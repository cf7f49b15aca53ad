/**
 * Ends the thinking of a request after its budget of tokens, by leaving only the tokens of the end marker, whatever other
 * processors prefer or exclude.
 */
import type { EngineConfig } from "../../contract/config.ts";
import type { ThinkingBudget } from "../../core/engine-request.ts";
import type { Logits } from "../contract/logits-processor.ts";
import type { SequenceBatchUpdate } from "./added-sequence.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";

/** White space that may precede the start marker of an output. */
const MAX_LEADING_TOKENS = 2;

interface Grammars {
  /** Whether the grammar of the row, if it has one, allows the token next. */
  allows(rowIndex: number, tokenId: number): boolean;
}

/** Mutable. */
interface Thinking {
  readonly budget: ThinkingBudget;
  /** The live list. */
  readonly outputTokenIds: readonly number[];
  /** Tokens that have been looked at. */
  numSeen: number;
  /** Index of the first token of the thinking; null until it starts. */
  firstIndex: number | null;
  /** The only token that may come next; null while any may. */
  forcedTokenId: number | null;
}

/**
 * Budgets count tokens, not the markers. A marker of several tokens is recognised in the tokens into which the tokenizer
 * divides it when it stands alone.
 */
export class ThinkingBudgetLogitsProcessor extends BuiltInLogitsProcessor<Thinking> {
  readonly #grammars: Grammars;

  constructor(config: EngineConfig, grammars: Grammars) {
    super(config);
    this.#grammars = grammars;
  }

  override updateState(batchUpdate: SequenceBatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ thinkingBudget: budget, outputTokenIds }) => {
      if (budget === undefined) return undefined;
      return { budget, outputTokenIds, numSeen: 0, firstIndex: budget.startsInside ? 0 : null, forcedTokenId: null };
    });
    for (const [rowIndex, thinking] of this.rows.entries()) {
      if (!follow(thinking)) this.rows.delete(rowIndex);
    }
  }

  override readsRow(rowIndex: number): boolean {
    return (this.rows.get(rowIndex)?.forcedTokenId ?? null) !== null;
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, { forcedTokenId }] of this.rows.entries()) {
      if (forcedTokenId === null) continue;
      // A grammar allows no marker within a character. The next step is tried then.
      if (!this.#grammars.allows(rowIndex, forcedTokenId)) continue;
      const row = logits.row(rowIndex);
      row.fill(-Infinity);
      row[forcedTokenId] = 0;
    }
    return logits;
  }
}

/** Looks at the new tokens. Returns false once the thinking is over, or if there is none. */
function follow(thinking: Thinking): boolean {
  const { budget, outputTokenIds } = thinking;
  const { startTokenIds, endTokenIds, numTokens } = budget;
  while (thinking.numSeen < outputTokenIds.length) {
    thinking.numSeen += 1;
    const { numSeen, firstIndex } = thinking;
    if (firstIndex === null) {
      if (endsWith(outputTokenIds, numSeen, startTokenIds, startTokenIds.length)) thinking.firstIndex = numSeen;
      else if (numSeen >= startTokenIds.length + MAX_LEADING_TOKENS) return false;
    } else if (
      numSeen - firstIndex >= endTokenIds.length &&
      endsWith(outputTokenIds, numSeen, endTokenIds, endTokenIds.length)
    ) {
      return false;
    }
  }
  const { firstIndex, numSeen } = thinking;
  const isSpent = firstIndex !== null && numSeen - firstIndex >= numTokens;
  thinking.forcedTokenId = isSpent ? nextOf(outputTokenIds, firstIndex, endTokenIds) : null;
  return true;
}

/** The token of the marker that continues the tokens, which may have begun it since `firstIndex`. */
function nextOf(tokenIds: readonly number[], firstIndex: number, marker: readonly number[]): number {
  for (let length = Math.min(marker.length - 1, tokenIds.length - firstIndex); length > 0; length--) {
    if (endsWith(tokenIds, tokenIds.length, marker, length)) return marker[length]!;
  }
  return marker[0]!;
}

/** Whether the tokens up to `end` end with the first `length` tokens of the marker. */
function endsWith(tokenIds: readonly number[], end: number, marker: readonly number[], length: number): boolean {
  if (end < length) return false;
  for (let index = 0; index < length; index++) {
    if (tokenIds[end - length + index] !== marker[index]) return false;
  }
  return true;
}
