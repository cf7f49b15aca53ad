/** Remembers which threads have computed the beginnings of prompts, and so may still hold their keys and values. */
import type { EngineRequest } from "../core/engine-request.ts";

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

/** Mutable. Keys are hashes, of which two may be equal by chance: a request is then computed from its start. */
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
