/** 5: the whole paged decoder: tokens per second and prefill of random weights. 13: recorded answers of all families. */
import type { DtypeName } from "../../../engine/contract/config.ts";
import { inspectCudaDriver } from "../../../engine/runtime/cuda-driver.ts";
import { cardRates, type CardRates } from "../card-rates.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { checkGoldens, checkScarceGoldens } from "../goldens.ts";
import { buildRandomModel, fastBlockSize, largeShape, smallShape, tinyShape, weightBytesPerStep } from "../models.ts";
import type { ModelShape } from "../models.ts";
import { isServed, recordedNames } from "../recorded-models.ts";
import { createSteppedEngine, loadClock, timeDecoding, timePrefill } from "../stepped-load.ts";

export const wholeDecoder: Experiment = {
  id: "5",
  title: "The whole paged decoder in the shape of SmolLM2 135M",
  run: (context) => measure(context, context.device === "cpu" ? tinyShape : smallShape),
};

export const recordedAnswers: Experiment = {
  id: "13",
  title: "Recorded answers of every decoder family",
  run: async (context) => {
    const { device, report } = context;
    for (const dtype of goldenDtypes(context)) {
      for (const name of device === "cpu" ? ["llama", "hub/llama-3"] : recordedNames) {
        if (!isServed(name, device, dtype, "paged")) continue;
        await report.attempt(`${name} ${dtype}`, () => checkGoldens(context, name, dtype, "paged"));
        await report.attempt(`${name} ${dtype}, scarce`, () => checkScarceGoldens(context, name, dtype));
      }
    }
  },
};

export const largeDecoder: Experiment = {
  id: "5-8b",
  title: "The whole paged decoder in the shape of Llama 3 8B",
  run: (context) => measure(context, context.device === "cpu" ? tinyShape : largeShape),
};

/** Those that the device has attention for. */
export function goldenDtypes({ device, dtype }: Pick<ExperimentContext, "device" | "dtype">): readonly DtypeName[] {
  if (dtype !== null) return [dtype];
  return device === "cuda" ? ["float16", "bfloat16"] : ["float32"];
}

/** Tokens of the longest sequence on a card: the longest prompt, and what is decoded. */
export const maxLargeLen = 8448;

const bytesPerWeight: Readonly<Partial<Record<DtypeName, number>>> = { float32: 4, int8: 1.0625, int4: 0.5625 };

async function measure(context: ExperimentContext, shape: ModelShape): Promise<void> {
  // Both 16-bit types of 135M; of 8B, the time is enough for one.
  const dtypes = shape === largeShape && context.dtype === null ? (["bfloat16"] as const) : goldenDtypes(context);
  for (const dtype of dtypes) {
    const name = `${shape.name} ${dtype}`;
    await context.report.group(name, () => measureForm(context, shape, { name, dtype, kind: "activations" }));
    if (shape === smallShape) continue;
    const withFp8 = `${name} with an FP8 cache`;
    await context.report.group(withFp8, () => measureForm(context, shape, { name: withFp8, dtype, kind: "fp8" }));
  }
}

interface MeasuredForm {
  readonly name: string;
  readonly dtype: DtypeName;
  /** Of keys and values. */
  readonly kind: "activations" | "fp8";
}

async function measureForm(
  context: ExperimentContext,
  shape: ModelShape,
  { name, dtype, kind }: MeasuredForm,
): Promise<void> {
  const { device, folder, report } = context;
  const isSmall = device === "cpu";
  const maxModelLen = isSmall ? 256 : maxLargeLen;
  const kvLayout = { kind: "paged", blockSize: fastBlockSize(device, shape.headDim) } as const;
  const startedAt = performance.now();
  const kvPrecision = { kind } as const;
  const model = await buildRandomModel({ shape, dtype, device, kvLayout, kvPrecision, maxModelLen, folder });
  report.figure(`${name}: checkpoint and graphs`, (performance.now() - startedAt) / 1000, "s");
  const contextTokens = isSmall ? 20 : 1024;
  const counts = isSmall ? [1, 4] : [1, 8, 32, 64, 128];
  const rates = findRates(context);
  const loadedAt = performance.now();
  using engine = await createSteppedEngine(model, device, maxModelLen, { maxNumSequences: counts.at(-1)! });
  report.figure(`${name}: load`, (performance.now() - loadedAt) / 1000, "s");
  report.figure(`${name}: load: the session`, loadClock.session, "s");
  report.figure(`${name}: load: capturing steps`, loadClock.warmUp, "s");
  report.figure(`${name}: tokens that fit`, engine.stats.kvCapacity.numTokens, "tokens");
  for (const [index, numSequences] of counts.entries()) {
    const label = `${name}, ${numSequences} sequences of ${contextTokens} tokens`;
    await report.attempt(label, () => {
      const load = { numSequences, contextTokens, numSteps: isSmall ? 4 : 48, salt: index + 1 };
      const { stepMs, runMs } = timeDecoding(engine, model.decoder, load);
      report.figure(label, (1000 * numSequences) / stepMs, "tokens/s");
      report.figure(`${label}: a step`, stepMs, "ms");
      report.figure(`${label}: of it on the host`, stepMs - runMs, "ms");
      // A run ends with the device's work.
      report.figure(`${label}: beyond the device's own time`, (100 * (stepMs - runMs)) / runMs, "%");
      const bytes = weightBytesPerStep(shape, bytesPerWeight[dtype] ?? 2);
      const terabytes = bytes / (stepMs / 1000) / 1e12;
      report.figure(`${label}: weights read`, terabytes, "TB/s");
      if (rates === null) return;
      report.figure(`${label}: of the memory's limit`, (100 * terabytes) / rates.terabytesPerSecond, "%");
    });
  }
  for (const [index, numTokens] of (isSmall ? [64, 200] : [512, 1024, 2048, 4096, 8192]).entries()) {
    const label = `${name}, a prompt of ${numTokens} tokens`;
    await report.attempt(label, () => {
      timePrefill(engine, model.decoder.vocabSize, numTokens, 7000 + index);
      const elapsedMs = timePrefill(engine, model.decoder.vocabSize, numTokens, 8000 + index);
      report.figure(label, (1000 * numTokens) / elapsedMs, "tokens/s");
      // The head computes one row. Attention is left out: 3 % of the work at 4,096 tokens of 8B.
      const headWeights = shape.vocabSize * shape.hiddenSize;
      const flops = 2 * ((weightBytesPerStep(shape, 1) - headWeights) * numTokens + headWeights);
      const teraflops = flops / (elapsedMs / 1000) / 1e12;
      report.figure(`${label}: rate of the matrices`, teraflops, "TFLOP/s");
      if (rates === null) return;
      report.figure(`${label}: of the dense 16-bit rate`, (100 * teraflops) / rates.denseTeraflops, "%");
    });
  }
}

/** Null on the CPU, and for cards whose rates are not known. */
function findRates({ device, report }: ExperimentContext): CardRates | null {
  if (device === "cpu") return null;
  const { name } = inspectCudaDriver(0);
  const rates = cardRates(name);
  if (rates === null) report.note(`test/gpu/card-rates.ts does not know ${name}: percentages are left out.`);
  return rates;
}
