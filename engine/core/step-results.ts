/** The result of one step for each sequence that sampled or failed. */
import type { EngineError } from "../contract/errors.ts";
import type { SampledLogprobs } from "../contract/request-output.ts";
import type { SampledRow } from "../sampling/sampler.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { FailedRun } from "../scheduler/step-limit.ts";
import type { PooledRow } from "./pooler.ts";

export type StepResult =
  | (Extract<SampledRow, { kind: "sampled" }> & {
      /**
       * Present with a sequence's first token: one entry for each prompt token except the first. Null if not requested.
       */
      readonly promptLogprobs: readonly SampledLogprobs[] | null;
    })
  | Extract<PooledRow, { kind: "pooled" }>
  | Extract<SampledRow, { kind: "failed" }>
  /** Its run found no memory. Nothing of it was computed. */
  | {
      readonly kind: "out_of_memory";
      readonly error: EngineError;
      readonly run: FailedRun;
      /** Whether the tokens before the run are as they were. False if recurrent states may have been replaced. */
      readonly keepsTokens: boolean;
    };

/** A sequence without an entry computed a part of its prompt. */
export type StepResults = ReadonlyMap<Sequence, StepResult>;
