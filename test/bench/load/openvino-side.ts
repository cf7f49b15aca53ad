/** OpenVINO GenAI under a load, in a process of its own. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { reportProgress } from "../measure.ts";
import { benchFolder, engineOptions, numThreads } from "../settings.ts";
import type { BenchDtype } from "../settings.ts";
import { shape } from "../shape.ts";
import type { Load, LoadFigures } from "./run-load.ts";

const run = promisify(execFile);
const peersFolder = fileURLToPath(new URL("../peers/", import.meta.url));
const environment = join(benchFolder, "openvino");
const programs = join(environment, "bin");

/** How `optimum-cli` quantises: per channel with 8 bits; symmetric groups of 64 with 4, as ours. */
const weightOptions: Readonly<Record<BenchDtype, readonly string[]>> = {
  int8: ["--weight-format", "int8"],
  int4: ["--weight-format", "int4", "--group-size", "64", "--sym", "--ratio", "1.0"],
};

/** Creates the Python environment if it is missing: about 4 GB, minutes. */
export async function installOpenVino(): Promise<void> {
  if (existsSync(join(programs, "optimum-cli"))) return;
  reportProgress(`installing OpenVINO GenAI into ${environment} ...`);
  await run("python3", ["-m", "venv", environment]);
  await run(join(programs, "pip"), ["install", "--quiet", "-r", join(peersFolder, "openvino-requirements.txt")]);
}

/** The bench's checkpoint in OpenVINO's format, exported once. */
async function exportModel(dtype: BenchDtype): Promise<string> {
  const folder = join(benchFolder, `openvino-${dtype}`);
  if (existsSync(join(folder, "openvino_model.xml"))) return folder;
  reportProgress(`exporting the checkpoint to OpenVINO in ${dtype} ...`);
  const task = ["--task", "text-generation-with-past"];
  const from = ["--model", engineOptions(dtype).model];
  await run(join(programs, "optimum-cli"), ["export", "openvino", ...from, ...task, ...weightOptions[dtype], folder]);
  return folder;
}

export async function measureOpenVino(dtype: BenchDtype, load: Load): Promise<LoadFigures> {
  const folder = await exportModel(dtype);
  const options = JSON.stringify({ ...load, threads: numThreads, vocabSize: shape.vocabSize });
  const { stdout } = await run(join(programs, "python"), [join(peersFolder, "openvino-load.py"), folder, options]);
  return JSON.parse(stdout.trim().split("\n").at(-1)!) as LoadFigures;
}
