/** 16: the service on the device, asked over HTTP about pictures. */
import { benchAccuracy } from "../../bench/accuracy.ts";
import type { Experiment } from "../experiment.ts";

/** The CPU answers 97.5 % of all questions. */
const wantedPercent = 95;

export const servedAnswers: Experiment = {
  id: "16",
  title: "Held-out questions about pictures, asked over HTTP",
  async run({ device, report }) {
    await report.attempt("questions", async () => {
      const startedAt = performance.now();
      // Leaves room for other parts that run at the same time.
      const environment = { DEVICE: device, GPU_MEMORY_UTILIZATION: "0.2" };
      const figures = await benchAccuracy({ environment, ...(device === "cpu" && { numQuestions: 60 }) });
      for (const { name, ours } of figures) report.figure(name, ours, "%");
      report.figure("start and all questions", (performance.now() - startedAt) / 1000, "s");
      const whole = figures.at(-1)!.ours;
      report.check("answers are right", whole >= wantedPercent, `${whole.toFixed(1)} %`);
    });
  },
};
