/** The tokens that end a text, for processors that end one or keep one from ending. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { EngineConfig } from "fovea";

/**
 * Those of the option `endTokenIds`, otherwise of the checkpoint's generation_config.json or config.json.
 *
 * @throws Error if neither names one.
 */
export function endTokensOf({ model }: EngineConfig, options: Readonly<Record<string, unknown>>): readonly number[] {
  const named = tokenIdsIn(options.endTokenIds);
  if (named.length > 0) return named;
  for (const name of ["generation_config.json", "config.json"]) {
    const path = join(model, name);
    if (!existsSync(path)) continue;
    const { eos_token_id: tokenIds } = JSON.parse(readFileSync(path, "utf8")) as { eos_token_id?: unknown };
    const found = tokenIdsIn(tokenIds);
    if (found.length > 0) return found;
  }
  throw new Error(`${model} names no end token; give the processor the option {"endTokenIds": [...]}.`);
}

/** Makes every other token impossible. `row`: [vocabSize], edited in place. */
export function keepOnly(tokenIds: readonly number[], row: Float32Array): Float32Array {
  const kept = tokenIds.map((tokenId) => row[tokenId] ?? Number.NEGATIVE_INFINITY);
  row.fill(Number.NEGATIVE_INFINITY);
  tokenIds.forEach((tokenId, index) => (row[tokenId] = kept[index]!));
  return row;
}

function tokenIdsIn(value: unknown): readonly number[] {
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  return values.filter((tokenId): tokenId is number => Number.isInteger(tokenId));
}
