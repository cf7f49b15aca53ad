/** The result of one step for each sequence that sampled or failed. */
import type { SampledLogprobs } from "../contract/request-output.ts";
import type { SampledRow } from "../sampling/sampler.ts";
import type { Sequence } from "../scheduler/sequence.ts";

export type StepResult =
  | (Extract<SampledRow, { kind: "sampled" }> & {
      /**
       * Present with a sequence's first token: one entry for each prompt token except the first. Null if not requested.
       */
      readonly promptLogprobs: readonly SampledLogprobs[] | null;
    })
  | Extract<SampledRow, { kind: "failed" }>;

/** A sequence without an entry computed a part of its prompt. */
export type StepResults = ReadonlyMap<Sequence, StepResult>;
