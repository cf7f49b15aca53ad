/** Runs one experiment and reports it. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import type { DtypeName } from "../../engine/contract/config.ts";
import type { Experiment, ExperimentDevice } from "./experiment.ts";
import { describeMachine } from "./machine.ts";
import { Report } from "./report.ts";

export interface RunExperimentOptions {
  readonly device: ExperimentDevice;
  readonly dtype?: DtypeName | null;
  /** For graphs, checkpoints and caches. */
  readonly folder: string;
  /** For the report, `ID-DEVICE.json`. */
  readonly output: string;
  readonly log: (line: string) => void;
}

/** Whether all checks passed. */
export async function runExperiment(
  { id, title, run }: Experiment,
  { device, dtype = null, folder, output, log }: RunExperimentOptions,
): Promise<boolean> {
  const header = { experiment: id, title, device, machine: describeMachine() };
  const report = new Report(join(output, `${id}-${device}.json`), header, log);
  mkdirSync(folder, { recursive: true });
  try {
    await run({ device, dtype, folder, report });
    return report.finish();
  } catch (error) {
    return report.finish(error);
  }
}
