/** The position of one request in its grammar. */
import { EngineError } from "../contract/errors.ts";
import type { CompiledGrammar } from "./compiled-grammar.ts";
import { bytesOf } from "./grammar-vocabulary.ts";
import type { LoadedGrammar } from "./loaded-grammars.ts";
import type { Position } from "./reading.ts";
import { addTokens, allowOnly, allowsNothing } from "./token-bitmask.ts";
import type { TokenBitmask } from "./token-bitmask.ts";
import { FIRST_UNITS, MAX_STEP_UNITS, UNITS_PER_REPLAYED_TOKEN, UNITS_PER_TOKEN } from "./work-limits.ts";
import { TooMuchWork } from "./work-meter.ts";

/**
 * Mutable. Follows the text and computes the tokens that can come next. Never throws: the first failure is stored, and
 * no token is allowed from then on.
 */
export class GrammarRow {
  readonly #loaded: LoadedGrammar;
  readonly #grammar: CompiledGrammar;
  /** The live list. */
  readonly #outputTokenIds: readonly number[];
  /** After the last accepted token; null before the first use and after a failure. */
  #position: Position | null = null;
  /** Whether an end token was accepted; nothing can follow it. */
  #isEnded = false;
  /** The last result of `allows` or `checkChosen`; its token is usually accepted next. */
  #chosen: { readonly tokenId: number; readonly position: Position } | null = null;
  #numAccepted = 0;
  #failure: EngineError | null = null;
  /** Units of work that the request may still spend, and the part of it for this step. */
  #numUnitsLeft = FIRST_UNITS;
  #numStepUnitsLeft = MAX_STEP_UNITS;

  constructor(loaded: LoadedGrammar, grammar: CompiledGrammar, outputTokenIds: readonly number[]) {
    this.#loaded = loaded;
    this.#grammar = grammar;
    this.#outputTokenIds = outputTokenIds;
    this.#work(() => void (this.#position = loaded.recognizer.start()));
  }

  get failure(): EngineError | null {
    return this.#failure;
  }

  /** Starts a step: follows the output up to its newest token. Ignores tokens after an end token. */
  acceptNewTokens(): void {
    const numNewTokens = this.#outputTokenIds.length - this.#numAccepted;
    this.#numStepUnitsLeft = MAX_STEP_UNITS + Math.max(0, numNewTokens - 1) * UNITS_PER_REPLAYED_TOKEN;
    while (this.#failure === null && !this.#isEnded && this.#numAccepted < this.#outputTokenIds.length) {
      this.#numUnitsLeft = Math.min(FIRST_UNITS, this.#numUnitsLeft + UNITS_PER_TOKEN);
      const tokenId = this.#outputTokenIds[this.#numAccepted]!;
      this.#work(() => this.#accept(tokenId));
    }
  }

  /**
   * Fills in the tokens that can follow the accepted ones. After the end, which a request may ignore, these are the end
   * tokens.
   */
  fillBitmask(bitmask: TokenBitmask): void {
    const { vocabSize, eosTokenIds } = this.#grammar.vocabulary;
    bitmask.fill(0);
    const position = this.#position;
    if (position === null) return;
    if (this.#isEnded) return allowOnly(bitmask, eosTokenIds);
    this.#work(() => {
      addTokens(bitmask, this.#loaded.masks.at(position));
      if (position.canEnd) for (const tokenId of eosTokenIds) bitmask[tokenId >> 5]! |= 1 << (tokenId & 31);
      if (allowsNothing(bitmask, vocabSize)) this.#fail("runtime_failed", "allows no token here");
    });
  }

  /**
   * Call this before `tokenId` is emitted. If the token is not allowed, `failure` gives the reason afterwards, with the
   * custom processors that had the row.
   */
  checkChosen(tokenId: number, processorNames: readonly string[]): void {
    this.#work(() => {
      const position = this.#positionAfter(tokenId);
      if (position === null) this.#failAt(tokenId, processorNames);
      else this.#chosen = { tokenId, position };
    });
  }

  /** Whether `tokenId` can follow the accepted ones; false after a failure. */
  allows(tokenId: number): boolean {
    this.#work(() => {
      const position = this.#positionAfter(tokenId);
      this.#chosen = position === null ? null : { tokenId, position };
    });
    return this.#chosen?.tokenId === tokenId;
  }

  #accept(tokenId: number): void {
    const position = this.#positionAfter(tokenId);
    if (position === null) return this.#failAt(tokenId, []);
    this.#position = position;
    this.#isEnded = this.#grammar.vocabulary.eosTokenIds.includes(tokenId);
    this.#chosen = null;
    this.#numAccepted++;
  }

  /** Null for a token that must not come next. */
  #positionAfter(tokenId: number): Position | null {
    if (this.#chosen?.tokenId === tokenId) return this.#chosen.position;
    const { vocabulary } = this.#grammar;
    const position = this.#position!;
    const isEnd = vocabulary.eosTokenIds.includes(tokenId);
    if (this.#isEnded || isEnd) return isEnd && (this.#isEnded || position.canEnd) ? position : null;
    const bytes = bytesOf(vocabulary, tokenId);
    if (bytes.length === 0) return null;
    let next: Position | null = position;
    for (let index = 0; index < bytes.length && next !== null; index++)
      next = this.#loaded.recognizer.advance(next, bytes[index]!);
    return next;
  }

  /** Does nothing after a failure. */
  #work(work: () => void): void {
    if (this.#failure !== null) return;
    const { meter } = this.#loaded;
    const before = meter.numSpent;
    meter.allow(Math.min(this.#numUnitsLeft, this.#numStepUnitsLeft));
    try {
      work();
    } catch (error) {
      if (error instanceof TooMuchWork) this.#failAsTooExpensive();
      else this.#fail("runtime_failed", `failed: ${error instanceof Error ? error.message : String(error)}`, error);
    }
    const numSpent = meter.numSpent - before;
    this.#numUnitsLeft -= numSpent;
    this.#numStepUnitsLeft -= numSpent;
  }

  #failAt(tokenId: number, processorNames: readonly string[]): void {
    const problem = `does not allow the token ${tokenId} that was chosen`;
    if (processorNames.length === 0) this.#fail("runtime_failed", problem);
    else this.#fail("logits_processor_failed", `${problem} after the logits processors ${processorNames.join(", ")}`);
  }

  #failAsTooExpensive(): void {
    const problem = "is too expensive to follow: its text can be read in too many ways";
    this.#fail("invalid_argument", `${problem}. Make it less ambiguous, or make its counts smaller`);
  }

  #fail(
    code: "runtime_failed" | "logits_processor_failed" | "invalid_argument",
    reason: string,
    cause?: unknown,
  ): void {
    this.#failure = new EngineError(code, `The structured output ${this.#grammar.description} ${reason}.`, {
      ...(cause !== undefined && { cause }),
      ...(code === "invalid_argument" && { parameter: "samplingParams.structuredOutput" }),
    });
    this.#position = null;
    this.#chosen = null;
  }
}
