/**
 * `npm run bench -- [NAME ...] [--rounds N] [--minutes N] [--json FILE]`: measures the claims of the README and prints them as
 * tables. Figures of speed are ratios of two sides measured alternately in one run. No test depends on them.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import { parseArgs } from "node:util";

import { benchAccuracy } from "./accuracy.ts";
import { benchAdapters } from "./adapters.ts";
import { benchAgainstBareLoop } from "./against-bare-loop.ts";
import { benchAgainstLlamaCpp } from "./against-llama-cpp.ts";
import { benchAgainstHubExport, benchAgainstSameGraph } from "./against-transformers-js.ts";
import { benchChunkPieces } from "./chunk-pieces.ts";
import { benchDocuments } from "./documents.ts";
import { benchEncoders } from "./encoders.ts";
import { benchExperts } from "./experts.ts";
import { benchFirstByte } from "./first-byte.ts";
import { benchHops } from "./hops.ts";
import { benchHostStep } from "./host-step.ts";
import { benchHugePages } from "./huge-pages.ts";
import { benchImageCaches } from "./image-caches.ts";
import { benchImageProcessor } from "./image-processor.ts";
import { benchJobs } from "./jobs.ts";
import { benchLarge } from "./large.ts";
import {
  benchLoad,
  benchLoadAgainstLlamaCpp,
  benchLoadAgainstVllm,
  benchLoadInFloat32,
  benchLoadOfCopies,
  benchLoadOfPictures,
  benchLoadOverHttp,
} from "./load/load.ts";
import { loadPartNames } from "./load/parts.ts";
import { printTable, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchMemory } from "./memory.ts";
import { benchNoRepeatNgram } from "./no-repeat-ngram.ts";
import { benchNorms } from "./norms.ts";
import { benchOutputParsing } from "./output-parsing.ts";
import { benchPrefix } from "./prefix.ts";
import { benchQuantised } from "./quantised.ts";
import { benchSampling } from "./sampling.ts";
import { benchScale } from "./scale.ts";
import { benchFolder, engineOptions, numThreads } from "./settings.ts";
import { loadNames } from "./soak/loads.ts";
import type { LoadName } from "./soak/loads.ts";
import { benchSoak } from "./soak/soak.ts";
import { benchSpeculation } from "./speculation.ts";
import { benchStalls } from "./stalls.ts";
import { benchStartUp } from "./start-up.ts";
import { benchStructuredOutput } from "./structured-output.ts";
import { benchVideos } from "./videos.ts";
import { benchWebGpu } from "./webgpu.ts";

interface Bench {
  readonly title: string;
  /** Not measured unless it is named. */
  readonly isLong?: boolean;
  /**
   * @param rounds How often each side is measured, alternately.
   * @param only Names of parts to measure, for benches that have parts; empty means all.
   */
  readonly run: (rounds: number, only: readonly string[]) => Promise<Figure[]>;
}

const benches: Readonly<Record<string, Bench>> = {
  load: { title: "Serving loads against OpenVINO GenAI", run: benchLoad },
  "load-float32": {
    title: "A serving load against OpenVINO GenAI with activations of float32",
    run: benchLoadInFloat32,
  },
  "load-copies": { title: "Serving loads with a copy of the model for each thread", run: benchLoadOfCopies },
  "load-llama-cpp": { title: "A serving load against node-llama-cpp", run: benchLoadAgainstLlamaCpp },
  "load-vllm": { title: "A serving load over HTTP against vLLM", run: benchLoadAgainstVllm },
  "load-http": { title: "A serving load over HTTP against in process", run: benchLoadOverHttp },
  "load-pictures": { title: "A serving load of questions about pictures", run: benchLoadOfPictures },
  large: {
    title: "LLaVA 1.5 7B's shape, int4 (24 GiB of memory, 20 GB of disk)",
    run: (rounds) => benchLarge("7b", rounds),
    isLong: true,
  },
  "large-1b": { title: "A decoder of 1.1B behind CLIP, int4", run: (rounds) => benchLarge("1b", rounds), isLong: true },
  soak: {
    title: "Memory, handles and connections under a mixed load, last quarter against the second",
    run: () => benchSoak({ minutes, loadNames: soakLoads }),
    isLong: true,
  },
  stalls: { title: "Turns of the HTTP thread's event loop, in processor time", run: benchStalls },
  scale: { title: "10,000 waiting requests and 1,000 open streams", run: benchScale },
  engine: { title: "Engine against a bare loop over the same session", run: benchAgainstBareLoop },
  "chunk-pieces": { title: "Attention of a prompt's chunk in pieces, against the whole", run: benchChunkPieces },
  norms: { title: "Norm of a layer's residual stream, against ONNX Runtime's operator for both", run: benchNorms },
  sampling: { title: "Sampling of 32 sequences", run: benchSampling },
  no_repeat_ngram: { title: "A step of 32 sequences whose n-grams must not repeat", run: benchNoRepeatNgram },
  speculation: { title: "Drafts by prompt look-up, int8, answers written by a processor", run: benchSpeculation },
  "host-step": { title: "The host's share of a step of 64 sequences", run: benchHostStep },
  "structured-output": { title: "Structured output of 32 sequences", run: benchStructuredOutput },
  "output-parsing": { title: "Parsing of 32 streams of calls and thinking", run: benchOutputParsing },
  "llama-cpp": { title: "Against node-llama-cpp on the same shape", run: benchAgainstLlamaCpp },
  "transformers-js": { title: "Against transformers.js on the engine's own graph", run: benchAgainstSameGraph },
  "transformers-js-hub": {
    title: "Against transformers.js on an export as the hub has them",
    run: benchAgainstHubExport,
  },
  quantised: { title: "Quantised uploads against our own int4 and int8", run: benchQuantised },
  adapters: { title: "LoRA adapters that requests choose, against none", run: benchAdapters },
  experts: { title: "Mixtures of experts against a dense decoder with as much work for a token", run: benchExperts },
  "huge-pages": { title: "Weights in pages of 2 MiB, against 4 KiB", run: benchHugePages },
  "start-up": { title: "Start-up", run: benchStartUp },
  prefix: { title: "First token of a second turn, 900 tokens of history", run: benchPrefix },
  "first-byte": { title: "First byte of a stream, by endpoint", run: benchFirstByte },
  "image-caches": { title: "First token about a picture, by where it is known", run: benchImageCaches },
  encoders: { title: "Vision encoders, a picture of 1024x768, against LLaVA 1.5's", run: benchEncoders },
  "image-processor": { title: "Pictures to pixel values, against transformers.js", run: benchImageProcessor },
  documents: { title: "Pages of PDF files, against the same pages as PNG files", run: benchDocuments },
  videos: { title: "Frames of videos, against the program ffmpeg", run: benchVideos },
  memory: {
    title: "Resident memory",
    run: () => benchMemory(engineOptions("int8").model, ["int8", "int4", "float32"], benchFolder),
  },
  hops: { title: "Source files on three ways through the service", run: benchHops },
  jobs: { title: "Jobs from queues, with an engine that answers at once", run: benchJobs },
  webgpu: { title: "A decode step on WebGPU", run: benchWebGpu },
  accuracy: { title: "Answers of the shipped checkpoint", run: () => benchAccuracy() },
};

const defaultRounds = 3;
const busyLoadPerCore = 0.3;
const defaultMinutes = 60;
const usage = `Usage: npm run bench -- [NAME ...] [--rounds N] [--minutes N] [--loads NAME,...] [--only PART,...] [--json FILE]
Names: ${Object.keys(benches).join(", ")} (all but large, large-1b and soak where none is given)
--minutes N  lets soak run for N minutes, ${defaultMinutes} where not given
--loads ...  the kinds of requests that soak sends, all where not given: ${loadNames.join(", ")}
--only ...   parts of encoders (families, such as Qwen2-VL), of quantised (formats, such as awq) and of loads
             (${loadPartNames.join(", ")}), all where not given
--rounds N   measures every figure of time N times, ${defaultRounds} where not given
--json FILE  writes the figures of every round there as well`;

interface CommandLine {
  readonly names: readonly string[];
  readonly rounds: number;
  readonly minutes: number;
  readonly soakLoads: readonly LoadName[];
  readonly only: readonly string[];
  readonly jsonFile: string | undefined;
}

function parseCommandLine(): CommandLine {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        rounds: { type: "string" },
        minutes: { type: "string" },
        loads: { type: "string" },
        only: { type: "string" },
        json: { type: "string" },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.help === true) {
      console.log(usage);
      process.exit(0);
    }
    const unknown = positionals.filter((name) => !Object.hasOwn(benches, name));
    if (unknown.length > 0) throw new Error(`There is no bench ${unknown.join(", ")}.`);
    const rounds = Number(values.rounds ?? defaultRounds);
    if (!Number.isInteger(rounds) || rounds < 1) throw new Error(`--rounds is ${values.rounds}, not a number from 1.`);
    const minutes = Number(values.minutes ?? defaultMinutes);
    if (!(minutes > 0)) throw new Error(`--minutes is ${values.minutes}, not a number above 0.`);
    const soakLoads = (values.loads?.split(",") ?? loadNames) as readonly LoadName[];
    const unknownLoads = soakLoads.filter((name) => !loadNames.includes(name));
    if (unknownLoads.length > 0) throw new Error(`There is no load ${unknownLoads.join(", ")}.`);
    const all = Object.keys(benches).filter((name) => benches[name]?.isLong !== true);
    const only = values.only?.split(",") ?? [];
    return {
      names: positionals.length > 0 ? positionals : all,
      rounds,
      minutes,
      soakLoads,
      only,
      jsonFile: values.json,
    };
  } catch (error) {
    console.error(`${(error as Error).message}\n${usage}`);
    process.exit(2);
  }
}

const { names, rounds, minutes, soakLoads, only, jsonFile } = parseCommandLine();
mkdirSync(benchFolder, { recursive: true });
const machine = `${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.version}`;
console.log(`${machine}; ${numThreads} threads, ${rounds} rounds; ratios are medians over rounds measured in turn.`);
const loadAverage = loadavg()[0]!;
if (loadAverage > busyLoadPerCore * cpus().length) {
  // A runtime whose threads spin while they wait loses far more than its share of a core.
  console.log(`The machine is busy (load average ${loadAverage.toFixed(1)}): ratios will mislead.`);
}

const results: Record<string, readonly Figure[]> = {};
const failures: Record<string, string> = {};
for (const name of names) {
  const { title, isLong, run } = benches[name]!;
  reportProgress(`${title} ...`);
  try {
    results[name] = await run(rounds, only);
    printTable(title, results[name]);
    if (isLong === true && results[name].some(({ reached }) => reached === false)) process.exitCode = 1;
  } catch (error) {
    // A peer that is not installed, or another failure of one bench, does not stop the others.
    failures[name] = describe(error);
    console.log(`\n${title}\nnot measured: ${failures[name]}`);
    process.exitCode = 1;
  }
  if (jsonFile !== undefined) writeJson(jsonFile);
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message} (${describe(error.cause)})`;
}

/** Rewritten after every bench, so that an interrupted run leaves what it measured. */
function writeJson(file: string): void {
  const settings = { machine, memoryBytes: totalmem(), loadAverage, numThreads, rounds };
  writeFileSync(file, `${JSON.stringify({ ...settings, results, failures }, null, 2)}\n`);
}
