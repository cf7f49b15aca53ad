/** Proposes drafts for sequences that decode, and follows how many of their tokens the model samples as well. */
import { defaultPromptLookup, numSpeculativeTokensOf, speculativeLimits } from "../contract/speculative-config.ts";
import type { SpeculativeConfig } from "../contract/speculative-config.ts";
import type { KvManager } from "../kv/kv-manager.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import { PromptLookup } from "./prompt-lookup.ts";
import type { Draft, Sequence } from "./sequence.ts";

/** Counters since start. */
export interface DraftStats {
  readonly numDrafts: number;
  readonly numDraftTokens: number;
  readonly numAcceptedTokens: number;
  /** By position in the draft; as long as the setting's drafts, or the longest that was accepted. */
  readonly numAcceptedPerPosition: readonly number[];
}

/** While no request has asked for drafts. */
export const noDrafts: DraftStats = {
  numDrafts: 0,
  numDraftTokens: 0,
  numAcceptedTokens: 0,
  numAcceptedPerPosition: [],
};

/**
 * Most sequences that may decode in a step that checks drafts. Each draft takes a run of its own (1.2 times as long as a
 * newest token's, for 4 tokens of a decoder of 135M in int8), whereas one run computes the newest tokens of two sequences
 * in 1.1 times and of four in 1.4 times as long. Of drafts of 4 tokens, two sequences must accept 1.1 on average, four 2.4.
 */
const MAX_DRAFTING_SEQUENCES = 2;

/**
 * After a draft whose first token is wrong, so many tokens pass without a draft, twice as many after each further one, up
 * to the limit. Text that repeats by chance only then costs little.
 */
const FIRST_PAUSE_TOKENS = 1;
const MAX_PAUSE_TOKENS = 32;

interface SequenceDrafts {
  readonly lookup: PromptLookup;
  readonly maxTokens: number;
  /** Tokens without a draft after the next wrong one. */
  pauseTokens: number;
  /** No draft is proposed while the sequence is shorter. */
  pausedUntil: number;
}

export interface DraftOptions {
  /** Null proposes drafts only for requests that ask for them. Default null. */
  readonly speculativeConfig?: SpeculativeConfig | null | undefined;
  /** See `Decoder.draftObstacle`. Default false. */
  readonly checksDrafts?: boolean | undefined;
  readonly maxModelLen: number;
  readonly kvManager: KvManager;
}

/** Mutable; the scheduler's. Only it changes the drafts of sequences. */
export class Drafts {
  readonly #options: DraftOptions;
  readonly #config: SpeculativeConfig | null;
  /** Of sequences that may have drafts; null for one that may not. An entry is garbage-collected with its sequence. */
  readonly #sequences = new WeakMap<Sequence, SequenceDrafts | null>();
  readonly #numAcceptedPerPosition = Array.from({ length: speculativeLimits.numSpeculativeTokens }, () => 0);
  #numDrafts = 0;
  #numDraftTokens = 0;

  constructor(options: DraftOptions) {
    this.#options = options;
    this.#config = options.speculativeConfig ?? null;
  }

  get stats(): DraftStats {
    const accepted = this.#numAcceptedPerPosition;
    const numUsed = accepted.findLastIndex((count) => count > 0) + 1;
    return {
      numDrafts: this.#numDrafts,
      numDraftTokens: this.#numDraftTokens,
      numAcceptedTokens: accepted.reduce((sum, count) => sum + count, 0),
      numAcceptedPerPosition: accepted.slice(0, Math.max(numUsed, this.#config?.numSpeculativeTokens ?? 0)),
    };
  }

  /**
   * Gives the sequences that decode in a step drafts of at most `maxTokens` tokens together, if each of them gets one: a
   * step samples one token of each sequence, so its run is saved only if no sequence needs it. Returns the transfers to
   * perform before the drafts are computed.
   */
  schedule(decodes: readonly Sequence[], maxTokens: number): SlotTransfer[] {
    if (this.#options.checksDrafts !== true || decodes.length > MAX_DRAFTING_SEQUENCES) return [];
    let numLeft = maxTokens;
    const drafts = new Map<Sequence, Draft>();
    for (const sequence of decodes) {
      if (sequence.draft !== null) continue;
      const draft = this.#propose(sequence, numLeft);
      if (draft === null) return [];
      drafts.set(sequence, draft);
      numLeft -= draft.tokenIds.length;
    }
    return [...drafts].flatMap(([sequence, draft]) => this.#start(sequence, draft));
  }

  /** Compares the sequence's newest token with its draft, if it has one. */
  follow(sequence: Sequence): void {
    const { draft } = sequence;
    if (draft === null) return;
    const position = sequence.numTokens - 1 - draft.firstToken;
    const expected = draft.tokenIds[position];
    if (expected === sequence.outputTokenIds.at(-1)) {
      this.#numAcceptedPerPosition[position]!++;
      this.#sequences.get(sequence)!.pauseTokens = FIRST_PAUSE_TOKENS;
      return;
    }
    // Past its end, the draft was right.
    if (position === 0) this.#pause(sequence);
    this.end(sequence);
  }

  /** Safe to call for a sequence without a draft. Call it before the sequence gives up its memory. */
  end(sequence: Sequence): void {
    if (sequence.draft === null) return;
    sequence.draft = null;
    this.#options.kvManager.forgetDraft(sequence);
  }

  /** A draft of at most `maxTokens` tokens; null if nothing was found. */
  #propose(sequence: Sequence, maxTokens: number): Draft | null {
    const drafts = this.#draftsOf(sequence);
    if (drafts === null || sequence.numTokens < drafts.pausedUntil) return null;
    // The newest token has its room already.
    const numWithRoom = this.#options.kvManager.numTokensWithRoom(sequence) - 1;
    const numTokens = Math.min(drafts.maxTokens, maxTokens, numWithRoom, this.#numTokensToCome(sequence));
    if (numTokens < 1) return null;
    const tokenIds = drafts.lookup.propose(numTokens);
    return tokenIds.length === 0 ? null : { firstToken: sequence.numTokens, tokenIds };
  }

  #start(sequence: Sequence, draft: Draft): readonly SlotTransfer[] {
    const { kvManager } = this.#options;
    const { firstToken, tokenIds } = draft;
    // The other draft of the step may have taken its room.
    if (kvManager.numTokensWithRoom(sequence) < tokenIds.length + 1) return [];
    sequence.draft = draft;
    this.#numDrafts++;
    this.#numDraftTokens += tokenIds.length;
    return kvManager.reserve(sequence, firstToken + tokenIds.length);
  }

  #pause(sequence: Sequence): void {
    const drafts = this.#sequences.get(sequence)!;
    drafts.pausedUntil = sequence.numTokens + drafts.pauseTokens;
    drafts.pauseTokens = Math.min(2 * drafts.pauseTokens, MAX_PAUSE_TOKENS);
  }

  /** The last token of a sequence is never computed. */
  #numTokensToCome({ numTokens, numPositions, numPromptTokens, samplingParams }: Sequence): number {
    const maxTokens = numPromptTokens + (samplingParams.maxTokens ?? Infinity);
    return Math.min(this.#options.maxModelLen - numPositions, maxTokens - numTokens) - 1;
  }

  #draftsOf(sequence: Sequence): SequenceDrafts | null {
    const known = this.#sequences.get(sequence);
    if (known !== undefined) return known;
    const maxTokens =
      numSpeculativeTokensOf(sequence.samplingParams.extraArgs) ?? this.#config?.numSpeculativeTokens ?? 0;
    const created =
      maxTokens === 0
        ? null
        : {
            lookup: new PromptLookup(this.#config ?? defaultPromptLookup, sequence),
            maxTokens,
            pauseTokens: FIRST_PAUSE_TOKENS,
            pausedUntil: 0,
          };
    this.#sequences.set(sequence, created);
    return created;
  }
}
