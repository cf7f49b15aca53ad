/** A part for the test of the supervisor: `node crashing-part.ts OUTPUT RESUMES`. Its cases fail as those on a GPU may. */
import process from "node:process";

import { EngineError } from "../../engine/contract/errors.ts";
import { runExperiment } from "./run-experiment.ts";
import { exitCodes } from "./supervise-part.ts";

const [output, resumes] = process.argv.slice(2) as [string, string];
const outcome = await runExperiment(
  {
    id: "crashing",
    title: "Cases that end their process",
    async run({ report }) {
      await report.attempt("first", () => {
        report.check("first", true);
        report.figure("of the first case", 1, "once");
      });
      await report.group("group", async () => {
        await report.attempt("crashes", () => process.kill(process.pid, "SIGSEGV") && waitForever());
        await report.attempt("second", () => report.check("second", true));
        await report.attempt("loses the device", () => {
          throw new EngineError("device_lost", "CUDA failure 700");
        });
      });
      await report.attempt("hangs", waitForever);
      await report.attempt("last", () => report.check("last", true));
    },
  },
  { device: "cpu", folder: output, output, resumes: resumes === "true", log: () => {} },
);
process.exit(exitCodes[outcome]);

function waitForever(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
