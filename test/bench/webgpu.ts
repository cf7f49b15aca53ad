/** Measures the gain of decoding many sequences in one run on WebGPU over one run for each sequence. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { softwareGpuEnvironment } from "../support/programs/chromium.ts";
import { median, plainFigure } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchFolder } from "./settings.ts";
import type { WebGpuSteps } from "./webgpu-steps.ts";

const script = fileURLToPath(new URL("webgpu-steps.ts", import.meta.url));
/** A software GPU computes the shape of the larger benches in minutes. */
const model = fileURLToPath(new URL("../../models/fovea-shapes/", import.meta.url));

/** `WEBGPU_ADAPTER=system` measures on the adapter of the system, anything else on SwiftShader. */
export async function benchWebGpu(rounds: number): Promise<Figure[]> {
  const isOnSystem = process.env.WEBGPU_ADAPTER === "system";
  const env = isOnSystem ? process.env : await softwareGpuEnvironment();
  const args = [script, model, join(benchFolder, "cache"), String(rounds)];
  const { stdout } = await promisify(execFile)(process.execPath, args, { env });
  const adapter = isOnSystem ? "the system's adapter" : "SwiftShader";
  return (JSON.parse(stdout) as WebGpuSteps[]).map((steps) => toFigure(steps, adapter));
}

function toFigure({ numSequences, together, alone }: WebGpuSteps, adapter: string): Figure {
  const name = `a step of ${numSequences} on ${adapter}, together against one at a time`;
  const ratio = median(alone.map((time, round) => time / together[round]!));
  const rounds = { ours: together, theirs: alone };
  return { ...plainFigure(name, "ms", together), theirs: median(alone), ratio, rounds };
}
