/** Serving loads: requests that arrive while others decode, against other engines, and over HTTP against in process. */
import { comparedFigure, median, plainFigure, ratioFigure, reportProgress } from "../measure.ts";
import type { Figure } from "../measure.ts";
import { requirePeer } from "../peers.ts";
import { numThreads } from "../settings.ts";
import type { BenchDtype } from "../settings.ts";
import { writeQuantisedCheckpoint } from "../write-quantised-checkpoint.ts";
import { measureInProcess, measureOverHttp } from "./engine-side.ts";
import { measureLlamaCpp } from "./llama-cpp-side.ts";
import { installOpenVino, measureOpenVino } from "./openvino-side.ts";
import { mainLoad, selectLoadParts } from "./parts.ts";
import { measurePictures, measureStreams } from "./pictures.ts";
import type { Load, LoadFigures, LoadShape, Percentiles } from "./run-load.ts";
import { installVllm, measureVllm } from "./vllm-side.ts";

const pictureClientCounts = [1, 8] as const;
const pictureOutputTokens = 64;
const streamLoad: Load = { name: "streams", promptTokens: 64, outputTokens: 192, clients: 4, requests: 12 };
const sharesOfCapacity = [0.5, 0.8, 0.95] as const;
const openLoopRequests = 80;
const targets: Readonly<Record<BenchDtype, number>> = { int8: 1.2, int4: 1 };
const httpTarget = 0.9;

/** Every client sends three requests, so that prompts arrive while others decode. */
function closedLoad(shape: LoadShape, clients: number): Load {
  return { ...shape, clients, requests: Math.max(4, 3 * clients) };
}

type Sides = Readonly<Record<"ours" | "theirs", readonly LoadFigures[]>>;

/** The sides in turn, once for every round. */
async function inTurn(
  rounds: number,
  label: string,
  sides: Readonly<Record<"ours" | "theirs", () => Promise<LoadFigures>>>,
): Promise<Sides> {
  const results: Record<"ours" | "theirs", LoadFigures[]> = { ours: [], theirs: [] };
  for (let round = 0; round < rounds; round++) {
    for (const side of ["theirs", "ours"] as const) {
      const figures = await sides[side]();
      results[side].push(figures);
      reportProgress(`${label}, ${side}: ${summary(figures)}`);
    }
  }
  return results;
}

function summary({ outputTokensPerSecond, firstTokenMs, betweenTokensMs }: LoadFigures): string {
  const milliseconds = ({ median, p99 }: Percentiles): string => `${median.toFixed(0)} ms (p99 ${p99.toFixed(0)})`;
  return (
    `${outputTokensPerSecond.toFixed(0)} tok/s, first ${milliseconds(firstTokenMs)}, ` +
    `between ${milliseconds(betweenTokensMs)}`
  );
}

/**
 * @param rounds How often each side is measured. A round takes about an hour.
 * @param only See `selectLoadParts`.
 */
export async function benchLoad(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const { dtypes, clientCounts, shapes, open, numCopies } = selectLoadParts(only);
  const programs = await installOpenVino();
  const figures: Figure[] = [];
  for (const dtype of dtypes) {
    const sidesOf = (load: Load, copies: number | null) => ({
      theirs: () => measureOpenVino(programs, dtype, load),
      ours: () => measureInProcess(dtype, load, copies),
    });
    const measureClosed = async (shape: LoadShape, clients: number, copies: number | null): Promise<Sides> => {
      const name = `${dtype}, ${shape.name}, ${clients} clients${ofCopies(copies)}`;
      const sides = await inTurn(rounds, name, sidesOf(closedLoad(shape, clients), copies));
      figures.push(...against(name, targets[dtype], sides));
      return sides;
    };
    let mostClients: Sides | undefined;
    for (const shape of shapes) {
      for (const clients of clientCounts) {
        for (const copies of numCopies) {
          const sides = await measureClosed(shape, clients, copies);
          if (shape === mainLoad) mostClients = sides;
        }
      }
    }
    if (!open) continue;
    const copies = numCopies.at(-1) ?? null;
    mostClients ??= await measureClosed(mainLoad, clientCounts.at(-1)!, copies);
    const capacity = requestsPerSecond(mostClients, mainLoad);
    for (const share of sharesOfCapacity) {
      const name = `${dtype}, ${mainLoad.name}, open loop at ${share * 100} %${ofCopies(copies)}`;
      const load = { ...mainLoad, requestsPerSecond: share * capacity, requests: openLoopRequests };
      const { ours, theirs } = await inTurn(rounds, name, sidesOf(load, copies));
      // The arrivals set the throughput.
      figures.push(...latencies(name, ours, theirs));
    }
  }
  return figures;
}

function ofCopies(copies: number | null): string {
  return copies === null ? "" : copies === 1 ? ", one copy" : `, ${copies} copies`;
}

/** Ours: as many copies of the model as threads. Theirs: one copy with all threads. */
export async function benchLoadOfCopies(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const { dtypes, clientCounts, shapes } = selectLoadParts(only);
  const figures: Figure[] = [];
  for (const dtype of dtypes) {
    for (const shape of shapes) {
      for (const clients of clientCounts) {
        const load = closedLoad(shape, clients);
        const name = `${dtype}, ${shape.name}, ${clients} clients: ${numThreads} copies against one`;
        const { ours, theirs } = await inTurn(rounds, name, {
          theirs: () => measureInProcess(dtype, load, 1),
          ours: () => measureInProcess(dtype, load, numThreads),
        });
        figures.push(comparedFigure(name, "tok/s", speeds(ours), speeds(theirs)), ...latencies(name, ours, theirs));
      }
    }
  }
  return figures;
}

/** What the slower side answered in its slowest round. */
function requestsPerSecond({ ours, theirs }: Sides, { outputTokens }: LoadShape): number {
  return Math.min(...speeds([...ours, ...theirs])) / outputTokens;
}

function against(name: string, target: number, { ours, theirs }: Sides): Figure[] {
  const ratio = ratioFigure({ name, unit: "tok/s", ours: speeds(ours), theirs: speeds(theirs), target });
  return [ratio, ...latencies(name, ours, theirs)];
}

function speeds(side: readonly LoadFigures[]): number[] {
  return side.map(({ outputTokensPerSecond }) => outputTokensPerSecond);
}

const latencyKinds = { "first token": "firstTokenMs", "between tokens": "betweenTokensMs" } as const;

function latencies(name: string, ours: readonly LoadFigures[], theirs: readonly LoadFigures[] = []): Figure[] {
  return Object.entries(latencyKinds).flatMap(([label, kind]) =>
    (["median", "p95", "p99"] as const).map((percentile) => {
      const of = (side: readonly LoadFigures[]): number[] => side.map((figures) => figures[kind][percentile]);
      return comparedFigure(`${name}: ${label}, ${percentile}`, "ms", of(ours), of(theirs));
    }),
  );
}

/** With activations of float32 on both sides. */
export async function benchLoadInFloat32(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const { dtypes, clientCounts } = selectLoadParts(only);
  const programs = await installOpenVino();
  const figures: Figure[] = [];
  for (const dtype of dtypes) {
    for (const clients of clientCounts) {
      const load = closedLoad(mainLoad, clients);
      const name = `${dtype}, OpenVINO in float32, ${load.name}, ${clients} clients`;
      const sides = await inTurn(rounds, name, {
        theirs: () => measureOpenVino(programs, dtype, load, "f32"),
        ours: () => measureInProcess(dtype, load),
      });
      figures.push(...against(name, targets[dtype], sides));
    }
  }
  return figures;
}

/** llama.cpp runs in a process of its own, called from TypeScript as ours. */
export async function benchLoadAgainstLlamaCpp(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const { dtypes, clientCounts } = selectLoadParts(only);
  requirePeer("node-llama-cpp");
  const figures: Figure[] = [];
  for (const dtype of dtypes) {
    for (const clients of clientCounts) {
      const load = closedLoad(mainLoad, clients);
      const name = `${dtype} against llama.cpp, ${load.name}, ${clients} clients`;
      const sides = await inTurn(rounds, name, {
        theirs: () => measureLlamaCpp(dtype, load),
        ours: () => measureInProcess(dtype, load),
      });
      figures.push(...against(name, 1, sides));
    }
  }
  return figures;
}

const vllmTarget = 2;

/** Both sides over HTTP. vLLM computes in bfloat16 or 8 bits, ours in 8 bits: of the same weights, or of the same file. */
export async function benchLoadAgainstVllm(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const { vllmForms, clientCounts, numCopies: copyCounts } = selectLoadParts(only);
  const programs = await installVllm();
  const figures: Figure[] = [];
  for (const form of vllmForms) {
    const checkpoint = form === "bfloat16" ? undefined : writeQuantisedCheckpoint(form);
    for (const clients of clientCounts) {
      for (const numCopies of copyCounts) {
        const load = closedLoad(mainLoad, clients);
        const name = `int8 against vLLM in ${form}, ${load.name}, ${clients} clients${ofCopies(numCopies)}`;
        const sides = await inTurn(rounds, name, {
          theirs: () => measureVllm(programs, form, load),
          ours: () => measureOverHttp("int8", load, { checkpoint, numCopies }),
        });
        figures.push(...against(name, vllmTarget, sides));
      }
    }
  }
  return figures;
}

/** Questions about pictures. No peer has the same checkpoint. */
export async function benchLoadOfPictures(rounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const clients of pictureClientCounts) {
    const name = `576 tokens of a picture in, ${pictureOutputTokens} out, ${clients} clients`;
    const measured: LoadFigures[] = [];
    for (let round = 0; round < rounds; round++) {
      const arrivals = { clients, requests: Math.max(4, 3 * clients) };
      measured.push(await measurePictures(arrivals, pictureOutputTokens));
      reportProgress(`${name}: ${summary(measured.at(-1)!)}`);
    }
    figures.push(plainFigure(name, "tok/s", speeds(measured)), ...latencies(name, measured));
  }
  return [...figures, ...(await benchStreams(rounds))];
}

/** Ours: streams beside pictures. Theirs: the same streams alone. */
async function benchStreams(rounds: number): Promise<Figure[]> {
  const name = `${streamLoad.promptTokens} in, ${streamLoad.outputTokens} out, 4 clients beside one of new pictures, against none`;
  const beside: LoadFigures[] = [];
  const alone: LoadFigures[] = [];
  const picturesMs: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const figures = await measureStreams(streamLoad);
    beside.push(figures.besidePictures);
    alone.push(figures.alone);
    picturesMs.push(median(figures.picturesMs));
    reportProgress(`${name}: ${summary(figures.besidePictures)}; alone: ${summary(figures.alone)}`);
  }
  const longest = (side: readonly LoadFigures[]): number[] =>
    side.map(({ betweenTokensMs }) => betweenTokensMs.max ?? 0);
  return [
    comparedFigure(name, "tok/s", speeds(beside), speeds(alone)),
    ...latencies(name, beside, alone),
    comparedFigure(`${name}: between tokens, longest`, "ms", longest(beside), longest(alone)),
    plainFigure("first token about a new picture beside 4 streams", "ms", picturesMs),
  ];
}

/** The service over HTTP against the engine in process, both on the same cores. */
export async function benchLoadOverHttp(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const { clientCounts } = selectLoadParts(only);
  const figures: Figure[] = [];
  for (const clients of clientCounts) {
    const load = closedLoad(mainLoad, clients);
    const name = `over HTTP, ${load.name}, ${clients} clients`;
    const sides = await inTurn(rounds, name, {
      theirs: () => measureInProcess("int8", load),
      ours: () => measureOverHttp("int8", load),
    });
    figures.push(...against(name, httpTarget, sides));
  }
  return figures;
}
