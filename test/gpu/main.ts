/**
 * `node test/gpu/main.ts PART [--device cpu|cuda] [--dtype TYPE] [--output FOLDER] [--folder FOLDER]`: runs one
 * experiment and writes what it found as JSON. docs/gpu.md lists the parts.
 */
import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { dtypeNames } from "../../engine/contract/config.ts";
import type { DtypeName } from "../../engine/contract/config.ts";
import type { ExperimentDevice } from "./experiment.ts";
import { experiments } from "./experiments.ts";
import { runExperiment } from "./run-experiment.ts";

const usage = `Usage: node test/gpu/main.ts PART [...] [--device cpu|cuda] [--dtype TYPE] [--output FOLDER] [--folder FOLDER]
Parts:
${experiments.map(({ id, title }) => `  ${id.padEnd(6)} ${title}`).join("\n")}
--device  cuda where not given; on the cpu, each part runs in small against the reference
--dtype   ${dtypeNames.join(", ")}: for parts that measure a model; where not given, each takes its own
--output  for the reports, gpu-reports where not given
--folder  for checkpoints and graphs, up to 34 GB for 5-8b; ${join(tmpdir(), "fovea-gpu")} where not given`;

interface CommandLine {
  readonly parts: readonly string[];
  readonly device: ExperimentDevice;
  readonly dtype: DtypeName | null;
  readonly output: string;
  readonly folder: string;
}

function parseCommandLine(): CommandLine {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        device: { type: "string", default: "cuda" },
        dtype: { type: "string" },
        output: { type: "string", default: "gpu-reports" },
        folder: { type: "string", default: join(tmpdir(), "fovea-gpu") },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.help === true) {
      console.log(usage);
      process.exit(0);
    }
    const { device, dtype, output, folder } = values;
    if (device !== "cpu" && device !== "cuda") throw new Error(`--device is ${device}, not cpu or cuda.`);
    if (dtype !== undefined && !dtypeNames.includes(dtype as DtypeName)) {
      throw new Error(`--dtype is ${dtype}, not one of ${dtypeNames.join(", ")}.`);
    }
    const unknown = positionals.filter((part) => !experiments.some(({ id }) => id === part));
    if (unknown.length > 0) throw new Error(`There is no part ${unknown.join(", ")}.`);
    if (positionals.length === 0) throw new Error("Which part?");
    return { parts: positionals, device, dtype: (dtype as DtypeName | undefined) ?? null, output, folder };
  } catch (error) {
    console.error(`${(error as Error).message}\n${usage}`);
    process.exit(2);
  }
}

const { parts, device, dtype, output, folder } = parseCommandLine();
mkdirSync(folder, { recursive: true });
for (const part of parts) {
  const experiment = experiments.find(({ id }) => id === part)!;
  console.log(`${part}: ${experiment.title}, on ${device}`);
  const passed = await runExperiment(experiment, { device, dtype, folder, output, log: (line) => console.log(line) });
  console.log(`${part}: ${passed ? "passed" : "FAILED"}; ${join(output, `${part}-${device}.json`)}`);
  if (!passed) process.exitCode = 1;
}
