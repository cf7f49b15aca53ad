/** What one step gave each sequence that was to sample, or that could not go on. */
import type { SampledLogprobs } from "../contract/request-output.ts";
import type { SampledRow } from "../sampling/sampler.ts";
import type { Sequence } from "../scheduler/sequence.ts";

export type StepResult =
  | (Extract<SampledRow, { kind: "sampled" }> & {
      /** With a sequence's first token: of every token of its prompt but the first. Null where it asks for none. */
      readonly promptLogprobs: readonly SampledLogprobs[] | null;
    })
  | Extract<SampledRow, { kind: "failed" }>;

/** A sequence without an entry computed a part of its prompt. */
export type StepResults = ReadonlyMap<Sequence, StepResult>;
