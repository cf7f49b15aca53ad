/** 12: the operators of recurrent layers against plain loops or the CPU reference, and their time. */
import { elementTypesOf, loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { relativeError, toleranceOf } from "../numbers.ts";
import { buildLayer, randomLayerBatch, recurInLoops, runLayer } from "../recurrent-layer.ts";
import type { LayerBatch, LayerResult, LayerShape } from "../recurrent-layer.ts";
import { medianOf, timeRuns } from "../timing.ts";

/** By name. The first two have heads for which the provider has other kernels than for those of 64, 128 and 256. */
const smallShapes: Readonly<Record<string, Omit<LayerShape, "elementType">>> = {
  "2/4 heads of 16 x 24": { numKeyHeads: 2, numValueHeads: 4, keyDim: 16, valueDim: 24, kernelSize: 4 },
  "3/3 heads of 8 x 8, kernels of 3": { numKeyHeads: 3, numValueHeads: 3, keyDim: 8, valueDim: 8, kernelSize: 3 },
  "1/2 heads of 64": { numKeyHeads: 1, numValueHeads: 2, keyDim: 64, valueDim: 64, kernelSize: 4 },
};

/** Those of Qwen3.5 with about 0.8 and 27 billion parameters. */
const largeShapes: typeof smallShapes = {
  "16/16 heads of 128": { numKeyHeads: 16, numValueHeads: 16, keyDim: 128, valueDim: 128, kernelSize: 4 },
  "16/48 heads of 128": { numKeyHeads: 16, numValueHeads: 48, keyDim: 128, valueDim: 128, kernelSize: 4 },
};

const decodes = (count: number): readonly number[] => Array.from({ length: count }, () => 1);
const smallBatches = { mixed: [70, 1, 17, 2, 1], "decode of 8": decodes(8) };
const largeBatches = {
  mixed: smallBatches.mixed,
  "decode of 1": decodes(1),
  "decode of 8": decodes(8),
  "decode of 32": decodes(32),
  "a chunk of 512": [512],
};

export const recurrence: Experiment = {
  id: "12",
  title: "Operators of recurrent layers against the CPU reference",
  async run(context) {
    const isSmall = context.device === "cpu";
    for (const elementType of elementTypesOf(context)) {
      const measure = async (shapes: typeof smallShapes, batches: Readonly<Record<string, readonly number[]>>) => {
        for (const [shapeName, sizes] of Object.entries(shapes)) {
          for (const [batchName, lengths] of Object.entries(batches)) {
            const name = `${elementType} ${shapeName}, ${batchName}`;
            await context.report.attempt(name, () => compare(context, name, { ...sizes, elementType }, lengths));
          }
        }
      };
      await measure(smallShapes, smallBatches);
      if (!isSmall) await measure(largeShapes, largeBatches);
    }
  },
};

/** Loops take too long beyond: tokens times numbers of a state. */
const maxLoopWork = 4e6;

function compare(context: ExperimentContext, name: string, shape: LayerShape, lengths: readonly number[]): void {
  const { device, report } = context;
  const { elementType, numValueHeads, keyDim, valueDim } = shape;
  const batch = randomLayerBatch(shape, lengths, 11);
  using session = loadGraph(context, `recurrence-${name.replaceAll(/\W+/g, "-")}`, buildLayer(device, shape));
  const once = runLayer(session, shape, batch);
  const times: number[] = [];
  const again = runLayer(session, shape, batch, (run) => {
    times.push(...timeRuns(run, { numRuns: device === "cpu" ? 2 : 20 }));
  });
  report.figure(name, medianOf(times) * 1000, "us");
  const numTokens = lengths.reduce((sum, length) => sum + length, 0);
  const isShort = numTokens * numValueHeads * keyDim * valueDim <= maxLoopWork;
  const expected = isShort ? recurInLoops(shape, batch) : recurOnCpu(context, shape, batch);
  const errors = errorsOf(once, expected);
  const against = isShort ? "loops" : "the CPU reference";
  const detail = `errors ${errors.map((error) => error.toExponential(1)).join(", ")} against ${against}`;
  const [ofConvolution, ofRule, ofInputs, ofMatrices] = errors;
  const isRight = Math.max(ofConvolution, ofInputs) <= toleranceOf[elementType] && Math.max(ofRule, ofMatrices) <= 1e-4;
  report.check(name, isRight, detail);
  // A captured graph computes a step three times.
  const spread = Math.max(...errorsOf(again, once));
  report.check(`${name}: a run again changes nothing`, spread === 0, `by ${spread.toExponential(1)}`);
}

function errorsOf(actual: LayerResult, expected: LayerResult): readonly [number, number, number, number] {
  return [
    relativeError(actual.convolved, expected.convolved),
    relativeError(actual.recurred, expected.recurred),
    relativeError(actual.states.convolution, expected.states.convolution),
    relativeError(actual.states.state, expected.states.state),
  ];
}

function recurOnCpu(context: ExperimentContext, shape: LayerShape, batch: LayerBatch): LayerResult {
  const exact = { ...shape, elementType: "float32" as const };
  using session = loadGraph({ ...context, device: "cpu" }, "reference", buildLayer("cpu", exact));
  return runLayer(session, exact, batch);
}
