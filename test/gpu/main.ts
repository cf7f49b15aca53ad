/**
 * `node test/gpu/main.ts PART [...]`: runs experiments, each in processes of its own, and writes what they found as JSON.
 * docs/gpu-experiments.md lists the parts.
 */
import { mkdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { dtypeNames } from "../../engine/contract/config.ts";
import type { DtypeName } from "../../engine/contract/config.ts";
import type { ExperimentDevice } from "./experiment.ts";
import { experiments } from "./experiments.ts";
import { PART_SECONDS } from "./report.ts";
import type { Shard } from "./report.ts";
import { reportName, runExperiment } from "./run-experiment.ts";
import { exitCodes, supervisePart } from "./supervise-part.ts";

const usage = `Usage: node test/gpu/main.ts PART [...] [--device cpu|cuda] [--dtype TYPE] [--output FOLDER] [--folder FOLDER]
                             [--seconds N] [--shard I/N]
Parts:
${experiments.map(({ id, title }) => `  ${id.padEnd(6)} ${title}`).join("\n")}
--device  cuda where not given; on the cpu, each part runs in small against the reference
--dtype   ${dtypeNames.join(", ")}: for parts that measure a model; where not given, each takes its own
--output  for the reports, gpu-reports where not given
--seconds of all parts together, ${PART_SECONDS} where not given; what is left then is noted and left out
--shard   such as 2/4: the second of four processes that share the cases of a part
--folder  for checkpoints and graphs, up to 23 GB for 5-8b; ${join(tmpdir(), "fovea-gpu")} where not given`;

interface CommandLine {
  readonly parts: readonly string[];
  readonly device: ExperimentDevice;
  readonly dtype: DtypeName | null;
  readonly output: string;
  readonly folder: string;
  readonly seconds: number;
  /** Null for all cases. */
  readonly shard: Shard | null;
  /** Set by the process that watches over the part. */
  readonly isOnePart: boolean;
  readonly resumes: boolean;
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
        seconds: { type: "string", default: String(PART_SECONDS) },
        shard: { type: "string" },
        "one-part": { type: "boolean", default: false },
        resume: { type: "boolean", default: false },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.help === true) {
      console.log(usage);
      process.exit(0);
    }
    const { device, dtype, output, folder } = values;
    const seconds = Number(values.seconds);
    if (!(seconds > 0)) throw new Error(`--seconds is ${values.seconds}, not a number above 0.`);
    if (device !== "cpu" && device !== "cuda") throw new Error(`--device is ${device}, not cpu or cuda.`);
    if (dtype !== undefined && !dtypeNames.includes(dtype as DtypeName)) {
      throw new Error(`--dtype is ${dtype}, not one of ${dtypeNames.join(", ")}.`);
    }
    const unknown = positionals.filter((part) => !experiments.some(({ id }) => id === part));
    if (unknown.length > 0) throw new Error(`There is no part ${unknown.join(", ")}.`);
    if (positionals.length === 0) throw new Error("Which part?");
    const flags = { isOnePart: values["one-part"], resumes: values.resume };
    return {
      parts: positionals,
      device,
      dtype: (dtype as DtypeName | undefined) ?? null,
      output,
      folder,
      seconds,
      shard: values.shard === undefined ? null : parseShard(values.shard),
      ...flags,
    };
  } catch (error) {
    console.error(`${(error as Error).message}\n${usage}`);
    process.exit(2);
  }
}

function parseShard(text: string): Shard {
  const [, index, count] = (/^(\d+)\/(\d+)$/.exec(text) ?? []).map(Number);
  if (index === undefined || count === undefined || index < 1 || index > count) {
    throw new Error(`--shard is ${text}, not one such as 2/4.`);
  }
  return { index, count };
}

const commandLine = parseCommandLine();
const { parts, device, dtype, output, folder, seconds, shard, isOnePart, resumes } = commandLine;
const log = (line: string): void => console.log(line);
mkdirSync(folder, { recursive: true });
if (isOnePart) {
  const experiment = experiments.find(({ id }) => id === parts[0])!;
  const outcome = await runExperiment(experiment, { device, dtype, folder, output, seconds, resumes, shard, log });
  process.exit(exitCodes[outcome]);
}
const endsAt = performance.now() + seconds * 1000;
for (const part of parts) {
  const { title } = experiments.find(({ id }) => id === part)!;
  console.log(`${part}: ${title}, on ${device}`);
  const path = join(output, reportName(part, device, { dtype, shard }));
  rmSync(path, { force: true });
  const outcome = await supervisePart(
    path,
    endsAt,
    (secondsLeft, resumed) => {
      const options = ["--device", device, "--output", output, "--folder", folder, "--seconds", secondsLeft.toFixed(1)];
      const flags = ["--one-part", ...(resumed ? ["--resume"] : []), ...(dtype === null ? [] : ["--dtype", dtype])];
      if (shard !== null) flags.push("--shard", `${shard.index}/${shard.count}`);
      return [fileURLToPath(import.meta.url), part, ...options, ...flags];
    },
    { log },
  );
  console.log(`${part}: ${outcome === "passed" ? "passed" : "FAILED"}; ${path}`);
  if (outcome !== "passed") process.exitCode = 1;
  if (outcome === "unusable") {
    console.log("No other part can run on this machine.");
    break;
  }
}
