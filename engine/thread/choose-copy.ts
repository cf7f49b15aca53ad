/** Decides which copy of the model computes a request, by their work and by the prompts that they have computed. */
import { ENOUGH_SEQUENCES } from "../contract/data-parallel.ts";
import type { EngineRequest } from "../core/engine-request.ts";

/** A copy, as far as the decision depends on it. */
export interface CopyLoad {
  /** That were sent to it and have not ended. */
  readonly numSequences: number;
  /** 0 to 1. */
  readonly kvCacheUsage: number;
}

export interface CopyLimits {
  /** Also of those that are not loaded yet. */
  readonly numCopies: number;
  /** Whether little work goes to one copy, because it has the threads of all copies while the others rest. */
  readonly gathers: boolean;
  /** That a copy computes at once. */
  readonly maxNumSequences: number;
}

/** A copy gets all requests only while its part of the memory has room for them. */
const MAX_KV_USAGE = 0.5;

/** While there is much work, a copy that knows this many tokens of a prompt may have one sequence more than another. */
const TOKENS_PER_MORE_SEQUENCE = 128;
const MAX_MORE_SEQUENCES = 2;

/** While there is little, a prompt goes to a resting copy that knows this much of it. Both then have fewer threads. */
const MANY_KNOWN_TOKENS = 512;

/**
 * Little work goes to the busiest copy, and much to the least busy one. A copy that knows a part of the prompt is preferred.
 *
 * @param copies At least one. The earliest of those that are equally suited is chosen.
 * @param known Null if no copy knows a part of the prompt.
 */
export function chooseCopy<Copy extends CopyLoad>(
  copies: readonly Copy[],
  known: KnownPrefix<Copy> | null,
  limits: CopyLimits,
): Copy {
  const busiest = busiestOf(copies);
  if (!needsAllCopies(copies, limits)) {
    const allRest = busiest.numSequences === 0;
    return known !== null && (allRest || known.numTokens >= MANY_KNOWN_TOKENS) ? busiestOf(known.targets) : busiest;
  }
  const leastBusy = leastBusyOf(copies);
  if (known === null) return leastBusy;
  const knowing = leastBusyOf(known.targets);
  const numMore = Math.min(MAX_MORE_SEQUENCES, Math.floor(known.numTokens / TOKENS_PER_MORE_SEQUENCE));
  return knowing.numSequences <= leastBusy.numSequences + numMore ? knowing : leastBusy;
}

/** Whether one copy can compute so much that the others are worth loading only when there is more. */
export function canLoadLater({ numCopies, gathers, maxNumSequences }: CopyLimits): boolean {
  return gathers && maxNumSequences >= ENOUGH_SEQUENCES * numCopies;
}

/** Whether the next request should not go to the busiest copy. */
export function needsAllCopies(
  copies: readonly CopyLoad[],
  { numCopies, gathers, maxNumSequences }: CopyLimits,
): boolean {
  const busiest = busiestOf(copies);
  const numAll = copies.reduce((sum, copy) => sum + copy.numSequences, 0);
  const hasRoom = busiest.numSequences < maxNumSequences && busiest.kvCacheUsage < MAX_KV_USAGE;
  return !gathers || !hasRoom || numAll >= ENOUGH_SEQUENCES * numCopies;
}

function leastBusyOf<Copy extends CopyLoad>(copies: readonly Copy[]): Copy {
  return copies.reduce((best, copy) => (copy.numSequences < best.numSequences ? copy : best));
}

function busiestOf<Copy extends CopyLoad>(copies: readonly Copy[]): Copy {
  return copies.reduce((best, copy) => (copy.numSequences > best.numSequences ? copy : best));
}

export type RoutedRequest = Pick<EngineRequest, "promptTokenIds" | "images" | "cacheSalt" | "adapterId">;

const CHUNK_TOKENS = 64;
/** Later tokens of a prompt do not count. */
const MAX_CHUNKS = 256;
/** Of a million tokens. */
const MAX_ROUTES = 16_384;

export interface KnownPrefix<Target> {
  readonly numTokens: number;
  /** At least one. */
  readonly targets: readonly Target[];
}

/**
 * Remembers which threads have computed the beginnings of prompts, and so may still hold their keys and values. Mutable.
 * Keys are hashes, of which two may be equal by chance: a request is then computed from its start.
 */
export class PrefixRoutes<Target> {
  /** In the order of last use. */
  readonly #targets = new Map<number, readonly Target[]>();

  /** For each whole chunk of the prompt, a hash of everything up to its end. */
  keysOf({ promptTokenIds, images, cacheSalt, adapterId = 0 }: RoutedRequest): readonly number[] {
    const hash = new RunningHash();
    hash.add(adapterId);
    hash.addText(cacheSalt ?? "");
    const keys: number[] = [];
    const numTokens = Math.min(promptTokenIds.length, MAX_CHUNKS * CHUNK_TOKENS);
    let nextImage = 0;
    for (let index = 0; index < numTokens; index++) {
      const image = images[nextImage];
      if (image?.placeholder.offset === index) {
        // The ids of its tokens are the same for all images.
        hash.addText(image.mmHash);
        nextImage += 1;
      }
      hash.add(promptTokenIds[index]!);
      if ((index + 1) % CHUNK_TOKENS === 0) keys.push(hash.value);
    }
    return keys;
  }

  /** The longest known beginning. */
  find(keys: readonly number[]): KnownPrefix<Target> | null {
    for (let index = keys.length - 1; index >= 0; index--) {
      const targets = this.#targets.get(keys[index]!);
      if (targets !== undefined) return { numTokens: (index + 1) * CHUNK_TOKENS, targets };
    }
    return null;
  }

  /** The target computes all of the beginnings. */
  add(keys: readonly number[], target: Target): void {
    for (const key of keys) {
      const known = this.#targets.get(key) ?? [];
      this.#targets.delete(key);
      this.#targets.set(key, known.includes(target) ? known : [...known, target]);
    }
    for (const oldest of this.#targets.keys()) {
      if (this.#targets.size <= MAX_ROUTES) break;
      this.#targets.delete(oldest);
    }
  }
}

/** Two hashes of 32 bits by multiplication, as FNV-1a with different primes. */
class RunningHash {
  #high = 0x811c9dc5;
  #low = 0x9dc5811c;

  add(value: number): void {
    this.#high = Math.imul(this.#high ^ value, 0x01000193);
    this.#low = Math.imul(this.#low ^ value ^ (this.#high >>> 15), 0x85ebca6b);
  }

  addText(text: string): void {
    for (let index = 0; index < text.length; index++) this.add(text.charCodeAt(index));
  }

  /** A safe integer. */
  get value(): number {
    return (this.#high >>> 11) * 2 ** 32 + (this.#low >>> 0);
  }
}
