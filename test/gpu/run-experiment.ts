/** Runs one experiment and reports it. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import type { DtypeName } from "../../engine/contract/config.ts";
import { EngineError } from "../../engine/contract/errors.ts";
import { GraphBuilder } from "../../engine/graph/graph-builder.ts";
import { add } from "../../engine/graph/standard-ops.ts";
import { inspectCudaDriver } from "../../engine/runtime/cuda-driver.ts";
import { requireCudaLibraries } from "../../engine/runtime/execution-provider.ts";
import { nativeFolder } from "../../engine/runtime/ort-api.ts";
import { Session } from "../../engine/runtime/session.ts";
import type { Experiment, ExperimentDevice } from "./experiment.ts";
import { describeMachine } from "./machine.ts";
import { Report, type ReportOptions } from "./report.ts";

export interface RunExperimentOptions extends ReportOptions {
  readonly device: ExperimentDevice;
  readonly dtype?: DtypeName | null;
  /** For graphs, checkpoints and caches. */
  readonly folder: string;
  /** For the report. */
  readonly output: string;
  readonly log: (line: string) => void;
}

/** How a part of experiments ended. `lost`: another process can go on with it. `unusable`: no part can run here. */
export type ExperimentOutcome = "passed" | "failed" | "lost" | "unusable";

/** The report's file: of a part, and what of it was asked for. */
export function reportName(
  id: string,
  device: ExperimentDevice,
  { dtype, shard }: Pick<RunExperimentOptions, "dtype" | "shard"> = {},
): string {
  const ofShard = shard == null ? [] : [`${shard.index}-of-${shard.count}`];
  return `${[id, device, ...(dtype == null ? [] : [dtype]), ...ofShard].join("-")}.json`;
}

export async function runExperiment(
  { id, title, run }: Experiment,
  { device, dtype = null, folder, output, log, ...reportOptions }: RunExperimentOptions,
): Promise<ExperimentOutcome> {
  const header = { experiment: id, title, device, machine: describeMachine() };
  const report = new Report(
    join(output, reportName(id, device, { dtype, ...reportOptions })),
    header,
    log,
    reportOptions,
  );
  mkdirSync(folder, { recursive: true });
  try {
    if (device === "cuda") startCuda();
  } catch (error) {
    report.check("the device starts", false, error instanceof Error ? error.message : String(error));
    report.finish();
    return "unusable";
  }
  try {
    await run({ device, dtype, folder, report });
    return report.finish() ? "passed" : "failed";
  } catch (error) {
    const isLost = error instanceof EngineError && error.code === "device_lost";
    // The case that lost it has failed.
    report.finish(isLost ? undefined : error);
    return isLost ? "lost" : "failed";
  }
}

/** @throws EngineError that says what is missing. */
function startCuda(): void {
  requireCudaLibraries(nativeFolder());
  inspectCudaDriver(0);
  const graph = new GraphBuilder("first");
  const x = graph.input("x", "float32", [1]);
  graph.output(add(graph, "y", x, x));
  Session.fromBytes(graph.encode(), { device: "cuda", deviceId: 0, numThreads: 1 })[Symbol.dispose]();
}
