/** Content hashes of multimodal items: equal hashes mean equal embeddings, so anything that changes them is in. */
import { createHash, webcrypto } from "node:crypto";

import { invariant } from "../errors.ts";

/** Anything that a processor can be configured with. */
export type CanonicalValue =
  | null
  | boolean
  | number
  | string
  | Uint8Array
  | readonly CanonicalValue[]
  | { readonly [key: string]: CanonicalValue };

export interface MultiModalHashInput {
  readonly modality: "image";
  /** Of the weights and the graph that make embeddings of the item. */
  readonly modelContentHash: string;
  /** The processor's whole configuration, as JSON has it. */
  readonly processorOptions: CanonicalValue;
  /** The item as it was received: the file's bytes, not its pixels. */
  readonly encodedBytes: Uint8Array;
}

/** Hex SHA-256. The item's bytes are digested off the calling thread. */
export async function computeMmHash(input: MultiModalHashInput): Promise<string> {
  const itemDigest = await webcrypto.subtle.digest("SHA-256", input.encodedBytes);
  return hashCanonical({
    model: input.modelContentHash,
    modality: input.modality,
    options: input.processorOptions,
    item: new Uint8Array(itemDigest),
  });
}

/**
 * Hex SHA-256 of a value's canonical form: every part is preceded by its type and its length or count, and keys are
 * sorted, so that different values never have the same form and the order of keys does not matter.
 */
export function hashCanonical(value: CanonicalValue): string {
  const hash = createHash("sha256");
  writeCanonical(hash, value);
  return hash.digest("hex");
}

function writeCanonical(hash: { update(bytes: Uint8Array): unknown }, value: CanonicalValue): void {
  if (value === null || typeof value === "boolean") {
    hash.update(prefixed(value === null ? "null" : value ? "true" : "false", 0));
  } else if (typeof value === "number") {
    hash.update(prefixed("number", 8));
    hash.update(new Uint8Array(Float64Array.of(value).buffer));
  } else if (typeof value === "string") {
    const bytes = Buffer.from(value);
    hash.update(prefixed("string", bytes.length));
    hash.update(bytes);
  } else if (value instanceof Uint8Array) {
    hash.update(prefixed("bytes", value.length));
    hash.update(value);
  } else if (isList(value)) {
    hash.update(prefixed("list", value.length));
    for (const element of value) writeCanonical(hash, element);
  } else {
    const keys = Object.keys(value).filter((key) => value[key] !== undefined);
    hash.update(prefixed("map", keys.length));
    for (const key of keys.sort()) {
      writeCanonical(hash, key);
      writeCanonical(hash, value[key]);
    }
  }
}

function isList(value: CanonicalValue): value is readonly CanonicalValue[] {
  return Array.isArray(value);
}

function prefixed(type: string, length: number): Uint8Array {
  invariant(Number.isSafeInteger(length), `a length of ${length}`);
  return Buffer.from(`${type}:${length};`);
}
