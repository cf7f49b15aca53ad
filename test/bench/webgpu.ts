/** What a decode step of many sequences gains on WebGPU over runs of one sequence each. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { softwareGpuEnvironment } from "../support/programs/chromium.ts";
import { plainFigure, reportProgress } from "./measure.ts";
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
  return (JSON.parse(stdout) as WebGpuSteps[]).map(({ numSequences, together, alone }): Figure => {
    const name = `a step of ${numSequences} on ${adapter}, together against one at a time`;
    reportProgress(name);
    const figure = plainFigure(name, "ms", together);
    const ratios = alone.map((time, round) => time / together[round]);
    return {
      ...figure,
      theirs: plainFigure(name, "ms", alone).ours,
      ratio: plainFigure(name, "", ratios).ours,
      rounds: { ours: together, theirs: alone },
    };
  });
}
