/** 11: the figures of parts 5, 7 and 8 once more, for a second kind of card, and part 2 under compute-sanitizer. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { Experiment, ExperimentContext } from "../experiment.ts";
import { cudaGraphs } from "./cuda-graphs.ts";
import { quantised } from "./quantised.ts";
import { wholeDecoder } from "./whole-decoder.ts";

export const repeat: Experiment = {
  id: "11",
  title: "Figures of parts 5, 7 and 8, and part 2 under compute-sanitizer",
  async run(context) {
    for (const { id, run } of [wholeDecoder, cudaGraphs, quantised]) {
      await context.report.group(`part ${id}`, () => run(context));
    }
    if (context.device === "cuda") sanitize(context);
  },
};

const main = fileURLToPath(new URL("../main.ts", import.meta.url));
const sanitizerTimeoutMs = 240_000;

function sanitize({ report, folder }: ExperimentContext): void {
  const output = join(folder, "sanitized");
  const part = [process.execPath, main, "2", "--device", "cuda", "--output", output, "--folder", folder];
  const options = ["--error-exitcode", "9", "--target-processes", "all"];
  const { status, error, stdout } = spawnSync("compute-sanitizer", [...options, ...part], {
    encoding: "utf8",
    timeout: sanitizerTimeoutMs,
  });
  if (error !== undefined && "code" in error && error.code === "ENOENT") {
    return report.note("compute-sanitizer is not on this machine; it comes with the CUDA toolkit.");
  }
  report.check("compute-sanitizer finds no error in part 2", status === 0, stdout.slice(-1500));
}
