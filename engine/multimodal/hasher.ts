/**
 * Content hashes of multimodal items. Equal hashes mean equal embeddings, so everything that changes embeddings is
 * hashed.
 */
import { createHash, hash, webcrypto } from "node:crypto";

import { invariant } from "../contract/errors.ts";

/** Any configuration value of a processor. */
export type CanonicalValue =
  | null
  | boolean
  | number
  | string
  | Uint8Array
  | readonly CanonicalValue[]
  | { readonly [key: string]: CanonicalValue };

/** The identity of an item. */
export type HashedItem =
  /** The received file, not its pixels; see `contentHashOf`. */
  | { readonly kind: "content"; readonly contentHash: string }
  /** A name given by the caller. Names belong to a tenant: the same name of another tenant is another item. */
  | { readonly kind: "uuid"; readonly tenant: string; readonly uuid: string };

export interface MultiModalHashInput {
  readonly modality: "image" | "image_embeds" | "video" | "document";
  /** Hash of the weights and the graph that make embeddings of the item. */
  readonly modelContentHash: string;
  /** All options of the processor: the checkpoint's configuration with the deployment's and the request's changes. */
  readonly processorOptions: CanonicalValue;
  readonly item: HashedItem;
  /** Items with different salts share nothing; null is a separate salt. */
  readonly cacheSalt: string | null;
}

/** Increase it when equal bytes and options are processed to different tensors. */
const PROCESSING_VERSION = 2;

/** Fewer bytes are hashed faster than another thread could be asked. */
const MIN_BYTES_OF_THREAD = 32 * 1024;

/** Hex SHA-256. Large inputs are hashed off the calling thread. */
export async function contentHashOf(encodedBytes: Uint8Array): Promise<string> {
  if (encodedBytes.length < MIN_BYTES_OF_THREAD) return hash("sha256", encodedBytes, "hex");
  return Buffer.from(await webcrypto.subtle.digest("SHA-256", encodedBytes)).toString("hex");
}

/** Hex SHA-256. */
export function computeMmHash({
  modality,
  modelContentHash,
  processorOptions,
  item,
  cacheSalt,
}: MultiModalHashInput): string {
  return hashCanonical({
    version: PROCESSING_VERSION,
    model: modelContentHash,
    modality,
    options: processorOptions,
    item: item.kind === "content" ? { content: item.contentHash } : { tenant: item.tenant, uuid: item.uuid },
    salt: cacheSalt,
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
      writeCanonical(hash, value[key]!);
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
