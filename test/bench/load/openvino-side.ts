/** OpenVINO GenAI under a load, in a process of its own. */
import { existsSync } from "node:fs";
import { join } from "node:path";

import { reportProgress } from "../measure.ts";
import { benchFolder, engineOptions, numThreads } from "../settings.ts";
import type { BenchDtype } from "../settings.ts";
import { shape } from "../shape.ts";
import { installPythonPeer, peersFolder, run } from "./python-environment.ts";
import { arrivalSeconds } from "./run-load.ts";
import type { Load, LoadFigures } from "./run-load.ts";

/** How `optimum-cli` quantises: per channel with 8 bits; symmetric groups of 64 with 4, as ours. */
const weightOptions: Readonly<Record<BenchDtype, readonly string[]>> = {
  int8: ["--weight-format", "int8"],
  int4: ["--weight-format", "int4", "--group-size", "64", "--sym", "--ratio", "1.0"],
};

/** Creates the Python environment if it is missing (about 4 GB). @returns The path of its programs. */
export const installOpenVino = (): Promise<string> => installPythonPeer({ title: "OpenVINO GenAI", name: "openvino" });

/** The bench's checkpoint in OpenVINO's format, exported once. */
async function exportModel(programs: string, dtype: BenchDtype): Promise<string> {
  const folder = join(benchFolder, `openvino-${dtype}`);
  if (existsSync(join(folder, "openvino_model.xml"))) return folder;
  reportProgress(`exporting the checkpoint to OpenVINO in ${dtype} ...`);
  const task = ["--task", "text-generation-with-past"];
  const from = ["--model", engineOptions(dtype).model];
  await run(join(programs, "optimum-cli"), ["export", "openvino", ...from, ...task, ...weightOptions[dtype], folder]);
  return folder;
}

/** @param precision Of activations. Default: OpenVINO's choice, bfloat16 on processors with AMX. */
export async function measureOpenVino(
  programs: string,
  dtype: BenchDtype,
  load: Load,
  precision?: "f32",
): Promise<LoadFigures> {
  const folder = await exportModel(programs, dtype);
  const arrivals = "clients" in load ? undefined : arrivalSeconds(load.requestsPerSecond, load.requests);
  const options = JSON.stringify({ ...load, arrivals, threads: numThreads, vocabSize: shape.vocabSize, precision });
  const { stdout } = await run(join(programs, "python"), [join(peersFolder, "openvino-load.py"), folder, options]);
  return JSON.parse(stdout.trim().split("\n").at(-1)!) as LoadFigures;
}
