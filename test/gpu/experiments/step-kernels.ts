/** 15: the time of every kernel of a step in the shape of Llama 3 8B, measured by Nsight Compute. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { Experiment } from "../experiment.ts";
import { kernelsOfSteps, profiledSteps } from "../profile-report.ts";
import type { KernelTime } from "../profile-report.ts";
import type { Report } from "../report.ts";
import { goldenDtypes } from "./whole-decoder.ts";

const program = fileURLToPath(new URL("../profiled-steps.ts", import.meta.url));
const timeoutMs = 110_000;
/** Kernels of a step with a figure of their own. */
const numNamed = 12;

export const stepKernels: Experiment = {
  id: "15",
  title: "Kernels of a step in the shape of Llama 3 8B, by Nsight Compute",
  async run(context) {
    const { device, folder, report } = context;
    const isSmall = device === "cpu";
    const dtypes = isSmall || context.dtype !== null ? goldenDtypes(context) : (["bfloat16", "int4"] as const);
    for (const dtype of dtypes) {
      await report.attempt(dtype, () => {
        const steps = [program, dtype, device, folder];
        const table = join(folder, `kernels-${dtype}.csv`);
        const options = [
          "--profile-from-start",
          "off",
          "--clock-control",
          "none",
          "--metrics",
          "gpu__time_duration.sum",
        ];
        const output = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", table];
        const [command, args] = isSmall
          ? [process.execPath, steps]
          : ["ncu", [...options, ...output, process.execPath, ...steps]];
        const ended = spawnSync(command, args, { encoding: "utf8", timeout: timeoutMs });
        if (ended.error !== undefined) throw ended.error;
        report.check(`${dtype}: the steps run`, ended.status === 0, ended.stderr.slice(-1500));
        for (const line of ended.stdout.split("\n")) {
          const [name, milliseconds] = line.split("\t");
          if (milliseconds !== undefined) report.figure(`${dtype}, ${name}, profiled`, Number(milliseconds), "ms");
        }
        if (isSmall || ended.status !== 0) return;
        const found = kernelsOfSteps(readFileSync(table, "utf8"));
        profiledSteps(isSmall).forEach(({ name }, index) => {
          reportKernels(report, `${dtype}, ${name}`, found[index] ?? []);
        });
      });
    }
  },
};

function reportKernels(report: Report, label: string, kernels: readonly KernelTime[]): void {
  const sum = (parts: readonly KernelTime[]): number => parts.reduce((total, part) => total + part.microseconds, 0);
  const numKernels = kernels.reduce((total, { count }) => total + count, 0);
  report.figure(`${label}: all ${numKernels} kernels`, sum(kernels), "us");
  for (const { kernel, count, microseconds } of kernels.slice(0, numNamed)) {
    report.figure(`${label}: ${count} x ${kernel}`, microseconds, "us");
  }
  report.figure(`${label}: others`, sum(kernels.slice(numNamed)), "us");
}
