/** Recorded conversations on a device, in either layout of the KV cache. */
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { DtypeName, EngineConfig } from "../../engine/contract/config.ts";
import type { BuiltModel, KvLayout } from "../../engine/models/built-model.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { createWorkerOptions, SteppedEngine } from "../engine/core/golden-engine.ts";
import { buildModel } from "../support/engine/shipped-models.ts";
import { collectReport } from "./collect-report.ts";
import type { ExperimentContext, ExperimentDevice } from "./experiment.ts";
import type { Comparison } from "./near-ties.ts";
import { loadRecordedModel, toleranceOf, type RecordedModel } from "./recorded-models.ts";

type GoldenContext = Pick<ExperimentContext, "device" | "folder" | "report">;

interface LoadedModel extends RecordedModel {
  readonly model: BuiltModel;
  readonly label: string;
  readonly tolerance: number;
}

/** Longer than every recorded conversation: the longest prompt has 201 tokens, and its answer 32. */
const maxModelLen = 256;
/** Tokens of a step: prompts as a whole, and in chunks of these sizes. */
const budgets = [512, 16, 1];
/** A session takes about a second to start on a card, so other models and slots have one size. */
const oneBudget = [16];
/** Smaller than the recorded conversations on every device. */
const SCARCE_BLOCK_SIZE = 16;
/** One sequence of full length, and the scratch block. */
const fewestBlocks = maxModelLen / SCARCE_BLOCK_SIZE + 1;

/** Blocks of the paged layout that the fused kernels of the device take for heads of every size. */
function goldenLayout(kind: KvLayout["kind"], device: ExperimentDevice): KvLayout {
  return kind === "slots" ? { kind } : { kind, blockSize: device === "cpu" ? 8 : 256 };
}

/**
 * Blocks for eight sequences, and the scratch block. A GPU would otherwise give all of its memory to the first of several
 * processes.
 */
const numBlocksOnDevice = 9;

/** Checks every recorded answer, with prompts in chunks of each size: alone, and together with the others. */
export async function checkGoldens(
  context: GoldenContext,
  name: string,
  dtype: DtypeName,
  kind: KvLayout["kind"],
): Promise<void> {
  const loaded = await load(context, name, dtype, goldenLayout(kind, context.device));
  const { cases, hasLogits } = loaded;
  for (const maxNumBatchedTokens of kind === "paged" && hasLogits ? budgets : oneBudget) {
    // Each time, all of the prompt is computed.
    using engine = await createEngine(context, loaded, {
      maxNumBatchedTokens,
      enablePrefixCaching: false,
      ...(kind === "paged" && context.device === "cuda" && { numBlocks: numBlocksOnDevice }),
    });
    for (const isTogether of [false, true]) {
      for (const [index, recorded] of cases.entries()) {
        engine.add(recorded.request(`${index}`, loaded.model));
        if (!isTogether) await engine.runToEnd();
      }
      await engine.runToEnd();
      const company = `${isTogether ? "with the others" : "alone"}, ${maxNumBatchedTokens} tokens a step`;
      for (const index of cases.keys()) checkAnswer(context, loaded, engine, index, company);
    }
  }
}

/** The largest gap between the recorded answers and those of the model after a change to its config.json. */
export async function largestGap(folder: string, name: string, change: (config: string) => string): Promise<number> {
  const context: GoldenContext = { device: "cpu", folder, report: collectReport(folder) };
  const loaded = await load(context, name, "float32", goldenLayout("paged", "cpu"), change);
  using engine = await createEngine(context, loaded, {});
  loaded.cases.forEach((recorded, index) => engine.add(recorded.request(`${index}`, loaded.model)));
  await engine.runToEnd();
  return Math.max(...loaded.cases.map((_, index) => compareAnswer(loaded, engine, index).gap));
}

/** Checks every recorded answer where blocks are scarce: requests are preempted, and later ones reuse what is left. */
export async function checkScarceGoldens(context: GoldenContext, name: string, dtype: DtypeName): Promise<void> {
  const loaded = await load(context, name, dtype, { kind: "paged", blockSize: SCARCE_BLOCK_SIZE });
  const { cases, label } = loaded;
  using engine = await createEngine(context, loaded, { numBlocks: fewestBlocks, maxNumBatchedTokens: 48 });
  // Enough to need twice the blocks, at eight sequences in a step.
  const numRequests = Math.max(12, 3 * cases.length);
  for (let index = 0; index < numRequests; index++) {
    engine.add(cases[index % cases.length]!.request(`${index}`, loaded.model));
  }
  await engine.runToEnd();
  for (let index = 0; index < numRequests; index++) {
    checkAnswer(context, loaded, engine, index, `request ${index} of a scarce pool`);
  }
  const { numPreemptions, numPrefixCacheHits, kvCacheUsage } = engine.stats;
  context.report.check(`${label}: sequences are preempted`, numPreemptions > 0, `${numPreemptions}`);
  context.report.check(`${label}: prefixes are reused`, numPrefixCacheHits > 0, `${numPrefixCacheHits} tokens`);
  context.report.check(`${label}: no block is lost`, kvCacheUsage === 0, `usage ${kvCacheUsage}`);
}

async function load(
  { device, folder }: GoldenContext,
  name: string,
  dtype: DtypeName,
  kvLayout: KvLayout,
  changeConfig?: (config: string) => string,
): Promise<LoadedModel> {
  const recorded = await loadRecordedModel(name, mkdtempSync(join(folder, "recorded-")));
  if (changeConfig !== undefined) {
    const path = join(recorded.checkpointFolder, "config.json");
    writeFileSync(path, changeConfig(readFileSync(path, "utf8")));
  }
  const cacheFolder = join(folder, "cache");
  const checkpoint = await openCheckpoint(recorded.checkpointFolder, { cacheFolder });
  // As on cuda. hub-checkpoints.test.ts has the answers of products for each expert.
  const fusesExperts = device === "cpu";
  const options = { dtype, device, kvLayout, maxModelLen, cacheFolder, numThreads: 2, fusesExperts };
  const model = await buildModel(checkpoint, options);
  return {
    ...recorded,
    model,
    label: `${name} ${dtype} ${kvLayout.kind}`,
    tolerance: toleranceOf(name, dtype),
  };
}

function createEngine(
  { device }: GoldenContext,
  { model, encodesPictures }: LoadedModel,
  overrides: Partial<EngineConfig>,
): Promise<SteppedEngine> {
  const options = createWorkerOptions(model, { device, ...overrides });
  // Recorded features need no encoder, whose kernels need cuDNN. The caches have room for them all the same.
  const loaded = encodesPictures ? model : { ...model, visionEncoder: null };
  return SteppedEngine.create({ ...options, model: loaded, maxModelLen });
}

function checkAnswer(
  { report }: GoldenContext,
  loaded: LoadedModel,
  engine: SteppedEngine,
  index: number,
  company: string,
): void {
  const { cases, label, tolerance } = loaded;
  const { name } = cases[index % cases.length]!;
  const error = engine.errorOf(`${index}`);
  const { isEqual, numEqual, gap } = compareAnswer(loaded, engine, index);
  const tokens = isEqual ? "equal tokens" : `${numEqual} equal tokens`;
  const detail = `${tokens}, gap ${gap.toPrecision(2)} of ${tolerance}`;
  report.check(`${label}: ${name} ${company}`, error == null && gap <= tolerance, error?.message ?? detail);
}

function compareAnswer({ cases, model }: LoadedModel, engine: SteppedEngine, index: number): Comparison {
  const { tokenIds, outputs } = engine.generations.get(`${index}`)!;
  const logprobs = outputs.flatMap((output) => output.logprobs ?? []);
  return cases[index % cases.length]!.compare(tokenIds, logprobs, model);
}
