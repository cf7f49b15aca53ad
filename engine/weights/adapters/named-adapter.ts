/** A LoRA adapter that requests choose. */
import type { LowRankUpdate } from "../stored-tensor.ts";

export interface NamedAdapter {
  /** Unique among the adapters of a model. */
  readonly name: string;
  /** Largest rank of its updates. */
  readonly rank: number;
  /** By the names of the checkpoint's tensors. */
  readonly updates: ReadonlyMap<string, LowRankUpdate>;
  /** Hex SHA-256 of its configuration and weights. */
  contentHash(this: void, signal?: AbortSignal): Promise<string>;
}

export function rankOf({ down }: LowRankUpdate): number {
  return down.shape[0]!;
}
