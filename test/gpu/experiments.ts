/** All experiments, in the order in which they are worth running on a new machine. */
import type { Experiment } from "./experiment.ts";
import { cudaGraphs } from "./experiments/cuda-graphs.ts";
import { interim } from "./experiments/interim.ts";
import { kernels } from "./experiments/kernels.ts";
import { loads } from "./experiments/loads.ts";
import { pagedAttention } from "./experiments/paged-attention.ts";
import { quantised } from "./experiments/quantised.ts";
import { recurrence } from "./experiments/recurrence.ts";
import { repeat } from "./experiments/repeat.ts";
import { samplingTail } from "./experiments/sampling-tail.ts";
import { servedAnswers } from "./experiments/served-answers.ts";
import { soak } from "./experiments/soak.ts";
import { stepKernels } from "./experiments/step-kernels.ts";
import { views } from "./experiments/views.ts";
import { vision } from "./experiments/vision.ts";
import { largeDecoder, recordedAnswers, wholeDecoder } from "./experiments/whole-decoder.ts";

export const experiments: readonly Experiment[] = [
  loads,
  views,
  pagedAttention,
  interim,
  wholeDecoder,
  largeDecoder,
  samplingTail,
  cudaGraphs,
  quantised,
  vision,
  soak,
  recurrence,
  recordedAnswers,
  kernels,
  stepKernels,
  servedAnswers,
  repeat,
];
