/** What one step gave each sequence that was to sample, or that could not go on. */
import type { EngineError } from "../errors.ts";
import type { SampledLogprobs } from "../request-output.ts";
import type { Sequence } from "./sequence.ts";

export type StepResult =
  | { readonly kind: "sampled"; readonly tokenId: number; readonly logprobs: SampledLogprobs | null }
  | { readonly kind: "failed"; readonly error: EngineError };

/** A sequence without an entry computed a part of its prompt. */
export type StepResults = ReadonlyMap<Sequence, StepResult>;
