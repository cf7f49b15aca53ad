/** 3: paged attention against the CPU reference, and that against plain loops. */
import { elementTypesOf, loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { relativeError, toleranceOf } from "../numbers.ts";
import { attendInLoops, buildAttention, randomBatch, runAttention, withUnwrittenMemory } from "../paged-attention.ts";
import type { AttentionBatch, AttentionResult, AttentionSequence, AttentionShape } from "../paged-attention.ts";

export const pagedAttention: Experiment = {
  id: "3",
  title: "Paged attention against the CPU reference",
  async run(context) {
    for (const { name, shape, sequences } of casesOf(context)) {
      await context.report.attempt(name, () => compare(context, name, shape, sequences));
    }
  },
};

interface Case {
  readonly name: string;
  readonly shape: AttentionShape;
  readonly sequences: readonly AttentionSequence[];
}

const numRepeats = 20;
/** Keys that 16 bits round otherwise than 32 may become neighbours in 8 bits. */
const FLOAT8_STEP = 1 / 8;
/** Loops take too long beyond: tokens times what they see times heads. */
const maxLoopWork = 4e6;

function casesOf(context: ExperimentContext): Case[] {
  const isSmall = context.device === "cpu";
  const heads = isSmall ? ([[4, 2]] as const) : ([[32, 8]] as const);
  const dims = isSmall ? [64] : [64, 96, 128, 256];
  const blockSizes = isSmall ? [16] : [16, 64, 128, 256];
  const decodes = (count: number, past: number): AttentionSequence[] =>
    Array.from({ length: count }, (_, index) => ({ past: past + ((index * 37) % 64), length: 1 }));
  const mixed: AttentionSequence[] = [
    { past: 0, length: 70 },
    { past: 129, length: 1 },
    { past: 300, length: 17 },
    { past: 16, length: 0 },
    { past: 301, length: 1 },
  ];
  const batches: Readonly<Record<string, readonly AttentionSequence[]>> = isSmall
    ? { mixed, "decode of 8": decodes(8, 20) }
    : {
        mixed,
        "decode of 1": decodes(1, 900),
        "decode of 32": decodes(32, 200),
        "decode of 300": decodes(300, 40),
        "a chunk of 1,024": [{ past: 1024, length: 1024 }],
        "a chunk of 2,048 after others": [{ past: 2048, length: 2048 }, ...decodes(2, 500)],
      };
  const cases: Case[] = [];
  for (const elementType of elementTypesOf(context)) {
    for (const [numHeads, numKvHeads] of heads) {
      for (const headDim of dims) {
        for (const blockSize of blockSizes) {
          const shape = { elementType, numHeads, numKvHeads, headDim, blockSize, localWindowSize: null };
          const label = `${elementType} ${numHeads}/${numKvHeads} heads of ${headDim}, blocks of ${blockSize}`;
          const fast = headDim <= 64 ? 256 : headDim <= 128 ? 128 : 64;
          for (const [name, sequences] of Object.entries(batches)) {
            // Long batches run with the block size that the engine takes.
            if (!isSmall && name !== "mixed" && blockSize !== fast) continue;
            cases.push({ name: `${label}, ${name}`, shape, sequences });
          }
          if (blockSize !== fast && !isSmall) continue;
          cases.push({ name: `${label}, window of 48`, shape: { ...shape, localWindowSize: 48 }, sequences: mixed });
        }
      }
    }
  }
  return [...cases, ...casesOfFloat8(context, mixed, decodes)];
}

/** Heads of the kernel for one token of each sequence, and groups that are filled up for it. */
function casesOfFloat8(
  context: ExperimentContext,
  mixed: readonly AttentionSequence[],
  decodes: (count: number, past: number) => readonly AttentionSequence[],
): Case[] {
  const isSmall = context.device === "cpu";
  const heads = isSmall
    ? ([[4, 2]] as const)
    : ([
        [32, 8],
        [28, 4],
        [16, 8],
      ] as const);
  const batches: Readonly<Record<string, readonly AttentionSequence[]>> = {
    mixed,
    "decode of 8": decodes(8, isSmall ? 20 : 900),
    ...(!isSmall && { "a chunk of 1,024": [{ past: 1024, length: 1024 }] }),
  };
  return elementTypesOf(context).flatMap((elementType) =>
    heads.flatMap(([numHeads, numKvHeads]) =>
      (isSmall ? [64] : [64, 128, 256]).flatMap((headDim) =>
        Object.entries(batches).flatMap(([name, sequences]) =>
          (name === "a chunk of 1,024" ? [null] : [null, 48]).map((localWindowSize): Case => {
            const blockSize = isSmall ? 16 : 128;
            const shape = { elementType, numHeads, numKvHeads, headDim, blockSize, localWindowSize, storesFp8: true };
            const window = localWindowSize === null ? "" : `, window of ${localWindowSize}`;
            return {
              name: `${elementType} with FP8, ${numHeads}/${numKvHeads} heads of ${headDim}, ${name}${window}`,
              shape,
              sequences,
            };
          }),
        ),
      ),
    ),
  );
}

function compare(
  context: ExperimentContext,
  name: string,
  shape: AttentionShape,
  sequences: readonly AttentionSequence[],
): void {
  const { report, device } = context;
  const batch = randomBatch(shape, sequences, 11);
  const tolerance = shape.storesFp8 === true && device === "cuda" ? FLOAT8_STEP : toleranceOf[shape.elementType];
  using session = loadGraph(context, `attention-${name.replaceAll(/\W+/g, "-")}`, buildAttention(device, shape));
  const actual = runAttention(session, shape, batch, { numRepeats });
  const work = sequences.reduce((sum, { past, length }) => sum + length * (past + length), 0) * shape.numHeads;
  const isShort = work <= maxLoopWork;
  const expected = isShort ? attendInLoops(shape, batch) : attendOnCpu(context, shape, batch);
  const errors = [
    relativeError(actual.attended, expected.attended),
    relativeError(actual.keyCache, expected.keyCache),
    relativeError(actual.valueCache, expected.valueCache),
  ];
  const numDifferent = actual.repeats.filter((repeat) => relativeError(repeat, actual.attended) > 0).length;
  const spread = Math.max(...actual.repeats.map((repeat) => relativeError(repeat, actual.attended)));
  const against = isShort ? "loops" : "the CPU reference";
  const detail =
    `errors ${errors.map((error) => error.toExponential(1)).join(", ")} against ${against}; ` +
    `${numDifferent} of ${numRepeats} repeats differ, by ${spread.toExponential(1)}`;
  const unwritten = runAttention(session, shape, withUnwrittenMemory(shape, batch));
  const unwrittenError = relativeError(unwritten.attended, expected.attended);
  report.check(
    `${name}: unwritten memory is not read`,
    unwrittenError <= tolerance,
    `error ${unwrittenError.toExponential(1)}`,
  );
  const passed = errors.every((error) => error <= tolerance);
  report.check(name, passed && spread <= tolerance, detail);
}

function attendOnCpu(context: ExperimentContext, shape: AttentionShape, batch: AttentionBatch): AttentionResult {
  const exact = { ...shape, elementType: "float32" as const };
  using session = loadGraph({ ...context, device: "cpu" }, "reference", buildAttention("cpu", exact));
  return runAttention(session, exact, batch);
}
