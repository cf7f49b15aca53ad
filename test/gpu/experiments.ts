/** All experiments, in the order in which they are worth running on a new machine. */
import type { Experiment } from "./experiment.ts";
import { interim } from "./experiments/interim.ts";
import { loads } from "./experiments/loads.ts";
import { pagedAttention } from "./experiments/paged-attention.ts";
import { views } from "./experiments/views.ts";
import { largeDecoder, wholeDecoder } from "./experiments/whole-decoder.ts";

export const experiments: readonly Experiment[] = [loads, views, pagedAttention, interim, wholeDecoder, largeDecoder];
