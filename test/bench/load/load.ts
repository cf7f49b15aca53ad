/** Serving loads: requests that arrive while others decode, against OpenVINO GenAI, and over HTTP against in process. */
import { plainFigure, ratioFigure, reportProgress } from "../measure.ts";
import type { Figure } from "../measure.ts";
import { benchDtypes } from "../settings.ts";
import type { BenchDtype } from "../settings.ts";
import type { ClosedLoop, LoadFigures, LoadShape } from "./closed-loop.ts";
import { measureInProcess, measureOverHttp } from "./engine-side.ts";
import { installOpenVino, measureOpenVino } from "./openvino-side.ts";

const loads: readonly LoadShape[] = [
  { name: "256 in, 128 out", promptTokens: 256, outputTokens: 128 },
  { name: "16 in, 64 out", promptTokens: 16, outputTokens: 64 },
  { name: "1,024 in, 64 out", promptTokens: 1024, outputTokens: 64 },
];
const clientCounts = [1, 8, 32, 64] as const;
const targets: Readonly<Record<BenchDtype, number>> = { int8: 1.2, int4: 1 };
const httpTarget = 0.9;

/** Every client sends at least two requests, so that prompts arrive while others decode. */
function loopOf(load: LoadShape, clients: number): ClosedLoop {
  return { ...load, clients, requests: Math.max(3, 2 * clients) };
}

/** The sides in turn, once for every round. */
async function inTurn(
  rounds: number,
  label: string,
  sides: Readonly<Record<string, () => Promise<LoadFigures>>>,
): Promise<Readonly<Record<string, readonly LoadFigures[]>>> {
  const results: Record<string, LoadFigures[]> = {};
  for (let round = 0; round < rounds; round++) {
    for (const [side, measure] of Object.entries(sides)) {
      const figures = await measure();
      (results[side] ??= []).push(figures);
      const { outputTokensPerSecond, firstTokenMs } = figures;
      reportProgress(
        `${label}, ${side}: ${outputTokensPerSecond.toFixed(0)} tok/s, first ${firstTokenMs.toFixed(0)} ms`,
      );
    }
  }
  return results;
}

/** @param rounds How often each side is measured. A round of all loads takes about 20 minutes. */
export async function benchLoad(rounds: number): Promise<Figure[]> {
  await installOpenVino();
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    for (const load of loads) {
      for (const clients of clientCounts) {
        const loop = loopOf(load, clients);
        const name = `${dtype}, ${load.name}, ${clients} clients`;
        const { ours = [], theirs = [] } = await inTurn(rounds, name, {
          theirs: () => measureOpenVino(dtype, loop),
          ours: () => measureInProcess(dtype, loop),
        });
        figures.push(...against(name, targets[dtype], ours, theirs));
      }
    }
  }
  return figures;
}

function against(name: string, target: number, ours: readonly LoadFigures[], theirs: readonly LoadFigures[]): Figure[] {
  const speed = (side: readonly LoadFigures[]): number[] => side.map((figures) => figures.outputTokensPerSecond);
  const wait = (side: readonly LoadFigures[]): number[] => side.map((figures) => figures.firstTokenMs);
  return [
    ratioFigure({ name, unit: "tok/s", ours: speed(ours), theirs: speed(theirs), target }),
    { ...plainFigure(`${name}: first token`, "ms", wait(ours)), theirs: plainFigure("", "ms", wait(theirs)).ours },
  ];
}

/** The service over HTTP against the engine in process, both on the same cores. */
export async function benchLoadOverHttp(rounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const clients of clientCounts) {
    const loop = loopOf(loads[0]!, clients);
    const name = `over HTTP, ${loop.name}, ${clients} clients`;
    const { ours = [], theirs = [] } = await inTurn(rounds, name, {
      theirs: () => measureInProcess("int8", loop),
      ours: () => measureOverHttp("int8", loop),
    });
    figures.push(...against(name, httpTarget, ours, theirs));
  }
  return figures;
}
