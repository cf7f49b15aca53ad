/** 14: kernels that decode steps could take instead of theirs: attention by type and layout, selection of candidates. */
import { bindVariant, buildVariant } from "../attention-variants.ts";
import type { AttentionVariant, CacheType } from "../attention-variants.ts";
import { bindTail, buildTail } from "../candidates-of-rows.ts";
import { loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { randomNumbers, relativeError } from "../numbers.ts";
import { medianOf, timeRuns } from "../timing.ts";

export const kernels: Experiment = {
  id: "14",
  title: "Kernels that decode steps could take",
  async run(context) {
    await selectCandidates(context);
    if (context.device === "cuda") await attend(context);
  },
};

/** Those of Llama 3 and Qwen3. */
const vocabularies = [128_256, 151_936] as const;

async function selectCandidates(context: ExperimentContext): Promise<void> {
  const isSmall = context.device === "cpu";
  for (const vocabSize of isSmall ? [16_384] : vocabularies) {
    for (const numRows of isSmall ? [1, 4] : [1, 8, 32, 128]) {
      const label = `candidates of ${numRows} rows of ${vocabSize}`;
      await context.report.attempt(label, () => {
        using session = loadGraph(context, `candidates-${vocabSize}`, buildTail(vocabSize));
        const values = randomNumbers(numRows * vocabSize, 3, 8);
        using tail = bindTail(session, vocabSize, values, new Float32Array(numRows).fill(1));
        const times = timeRuns(() => tail.compute(), { numRuns: isSmall ? 3 : 30 });
        context.report.figure(label, medianOf(times) * 1000, "us");
      });
    }
  }
}

/** Reading what fits into the card's cache again would be faster than a step. */
const numNodes = 4;

async function attend(context: ExperimentContext): Promise<void> {
  const { report } = context;
  const loads = [1, 8, 32, 128].flatMap((numSequences) => [{ numSequences, past: 1000 }]);
  loads.push({ numSequences: 1, past: 8000 }, { numSequences: 8, past: 8000 });
  for (const load of loads) {
    let plain: Float32Array | null = null;
    for (const variant of variants) {
      const label = `${variant.name}, ${load.numSequences} sequences of ${load.past} tokens`;
      await report.attempt(label, () => {
        const options = variant.blockSize === null ? {} : { cudaProviderOptions: { enable_cuda_graph: "1" } };
        using session = loadGraph(context, "attention-variant", buildVariant(variant, numNodes), options);
        using bound = bindVariant(session, variant, numNodes, load);
        bound.run();
        const output = bound.readOutput();
        if (variant === variants[0]) plain = output;
        else if (plain !== null && variant.blockSize === variants[0]!.blockSize) {
          const error = relativeError(output, plain);
          report.check(`${label}: as with 16 bits`, error < 0.05, `error ${error.toExponential(1)}`);
        }
        const microseconds = (1000 * medianOf(timeRuns(() => bound.run(), { numRuns: 20 }))) / numNodes;
        report.figure(label, microseconds, "us");
        report.figure(`${label}: keys and values read`, bound.cacheBytes / microseconds / 1e6, "TB/s");
      });
    }
  }
}

const paged = (name: string, cacheType: CacheType, blockSize: number, tellsLength: boolean): AttentionVariant => ({
  name,
  cacheType,
  blockSize,
  tellsLength,
});

/** The first is the engine's own where eight columns suffice, the second where more are needed. */
const variants: readonly AttentionVariant[] = [
  paged("blocks of 128", "bfloat16", 128, false),
  paged("blocks of 128, length told", "bfloat16", 128, true),
  { ...paged("blocks of 128, heads of a group as tokens", "bfloat16", 128, true), groupsAsTokens: true },
  // Too small for Flash attention.
  paged("blocks of 64", "bfloat16", 64, true),
  paged("blocks of 128 in FP8", "float8e4m3", 128, true),
  paged("blocks of 128 in int8", "int8", 128, true),
  { name: "slots", cacheType: "bfloat16", blockSize: null, tellsLength: true },
  { name: "slots in FP8", cacheType: "float8e4m3", blockSize: null, tellsLength: true },
  { name: "slots in int8", cacheType: "int8", blockSize: null, tellsLength: true },
];
