/** Computes the tokens that can follow a position of a text. */
import type { Call, Position, Rest } from "./reading.ts";
import type { Recognizer } from "./recognizer.ts";
import { addTokens, createTokenBitmask, packTokens } from "./token-bitmask.ts";
import type { TokenBitmask, TokenSet } from "./token-bitmask.ts";
import type { MaskKey, MaskKeyGroup, TokenMask, TokenMaskCache } from "./token-mask-cache.ts";
import type { TokenTrie } from "./token-trie.ts";
import { MAX_EXITS, walkTrie } from "./trie-walk.ts";
import type { TrieWalk } from "./trie-walk.ts";
import type { WorkMeter } from "./work-meter.ts";

/** Up to this many rests, their masks are combined. Above it, one walk from the position is tried first. */
const MAX_LOCAL_RESTS = 8;
/** Units of work for such a walk: a tenth of a walk through a large vocabulary. */
const JOINT_UNITS = 50_000;
/** Units of work for adding a mask to another, or packing one: 10 to 20 microseconds. */
const ADD_UNITS = 2048;
const noExits = new Int32Array();

export interface TokenMasksOptions {
  readonly recognizer: Recognizer;
  readonly tries: readonly TokenTrie[];
  /** Length of a row of logits. */
  readonly vocabSize: number;
  readonly meter: WorkMeter;
  readonly cache: TokenMaskCache;
}

/**
 * The tokens that can follow depend mostly on the current rule, not on its callers: inside a JSON string, all tokens
 * without a quote can follow. This part of a mask is computed once per rest and cached. If the rule can end within a
 * token, the walk continues with the callers. XGrammar's adaptive masks (Dong et al., 2024, arXiv:2411.15100) divide
 * the work in the same way. A count larger than the longest token of a trie makes no difference to its tokens, so rests
 * that differ only in such counts share a mask.
 *
 * Mutable. Throws TooMuchWork.
 */
export class TokenMasks {
  readonly #recognizer: Recognizer;
  readonly #tries: readonly TokenTrie[];
  readonly #meter: WorkMeter;
  readonly #cache: TokenMaskCache;
  /** Of this grammar's cached masks. */
  readonly #keyGroup: MaskKeyGroup = new Set();
  /** The keys of positions; and by trie, those of rests. */
  readonly #positionKeys = new WeakMap<Position, MaskKey>();
  readonly #restKeys: readonly WeakMap<Rest, MaskKey>[];
  /** As the recognizer counts them. */
  #numResets = 0;
  /** The position where a text continues after a call. */
  readonly #returned = new WeakMap<Call, Position>();
  readonly #bitmask: TokenBitmask;
  readonly #localBitmask: TokenBitmask;
  readonly #walk: Pick<TrieWalk, "recognizer" | "meter">;

  constructor({ recognizer, tries, vocabSize, meter, cache }: TokenMasksOptions) {
    this.#recognizer = recognizer;
    this.#tries = tries;
    this.#meter = meter;
    this.#cache = cache;
    this.#restKeys = tries.map(() => new WeakMap());
    this.#bitmask = createTokenBitmask(vocabSize);
    this.#localBitmask = createTokenBitmask(vocabSize);
    this.#walk = { recognizer, meter };
  }

  /** End tokens are not included. Do not change the result. */
  at(position: Position): TokenSet {
    if (this.#numResets !== this.#recognizer.numResets) {
      this.#numResets = this.#recognizer.numResets;
      this.clear();
    }
    const key = keyFor(this.#positionKeys, position, this.#keyGroup);
    const known = this.#cache.get(key);
    if (known !== undefined) return known.tokens;
    this.#bitmask.fill(0);
    for (const trieIndex of this.#tries.keys()) this.#addTrie(trieIndex, position);
    this.#meter.spend(ADD_UNITS);
    const tokens = packTokens(this.#bitmask);
    this.#cache.add(key, { tokens, exits: noExits });
    return tokens;
  }

  /** Removes the masks from the cache. */
  clear(): void {
    this.#cache.removeAll(this.#keyGroup);
  }

  #addTrie(trieIndex: number, position: Position): void {
    const trie = this.#tries[trieIndex]!;
    const local = new Map<Rest, (Call | null)[]>();
    for (const { rest, call } of position.readings) {
      const clamped = this.#recognizer.clamp(rest, trie.maxLength);
      const calls = local.get(clamped);
      if (calls === undefined) local.set(clamped, [call]);
      else calls.push(call);
    }
    const isTried =
      local.size <= MAX_LOCAL_RESTS || local.keys().some((rest) => this.#cache.has(this.#keyOf(trieIndex, rest)));
    if (!isTried && this.#meter.attempt(JOINT_UNITS, () => this.#addWalk(trie, position)) !== null) return;
    for (const [rest, calls] of local) this.#addLocal(trieIndex, rest, calls);
  }

  /** Returns whether the walk was completed. */
  #addWalk(trie: TokenTrie, position: Position, first = 0, end = trie.bytes.length): true {
    walkTrie({ ...this.#walk, trie, bitmask: this.#bitmask, exits: null }, position, first, end);
    return true;
  }

  /** Adds the tokens that can follow the rest, in each of its calls. */
  #addLocal(trieIndex: number, rest: Rest, calls: readonly (Call | null)[]): void {
    const trie = this.#tries[trieIndex]!;
    const { tokens, exits } = this.#localMask(trieIndex, rest);
    this.#meter.spend(ADD_UNITS);
    addTokens(this.#bitmask, tokens);
    if (exits?.length === 0) return;
    for (const call of calls) {
      if (call === null) continue;
      if (exits === null) {
        this.#addWalk(trie, this.#recognizer.positionAt([{ rest, call }]));
        continue;
      }
      const returned = this.#positionBehind(call);
      this.#meter.spend(exits.length);
      for (const exit of exits) this.#addWalk(trie, returned, exit + 1, trie.ends[exit]);
    }
  }

  /** The tokens that can follow the rest within its rule. */
  #localMask(trieIndex: number, rest: Rest): TokenMask {
    const key = this.#keyOf(trieIndex, rest);
    const known = this.#cache.get(key);
    if (known !== undefined) return known;
    const trie = this.#tries[trieIndex]!;
    const bitmask = this.#localBitmask.fill(0);
    const exits: number[] = [];
    const start = this.#recognizer.positionAt([{ rest, call: null }]);
    walkTrie({ ...this.#walk, trie, bitmask, exits }, start, 0, trie.bytes.length);
    this.#meter.spend(ADD_UNITS);
    const mask = { tokens: packTokens(bitmask), exits: exits.length === MAX_EXITS ? null : Int32Array.from(exits) };
    this.#cache.add(key, mask);
    return mask;
  }

  #keyOf(trieIndex: number, rest: Rest): MaskKey {
    return keyFor(this.#restKeys[trieIndex]!, rest, this.#keyGroup);
  }

  #positionBehind(call: Call): Position {
    let position = this.#returned.get(call);
    if (position === undefined) {
      position = this.#recognizer.positionAt(call.returns);
      this.#returned.set(call, position);
    }
    return position;
  }
}

function keyFor<T extends object>(keys: WeakMap<T, MaskKey>, subject: T, group: MaskKeyGroup): MaskKey {
  let key = keys.get(subject);
  if (key === undefined) keys.set(subject, (key = { group }));
  return key;
}
