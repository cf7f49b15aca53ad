/** Decoding with weights that were moved to pages of 2 MiB, and with weights that were not, in processes by turns. */
import { execFile } from "node:child_process";
import { execPath } from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchDtypes, concurrencies } from "./settings.ts";
import type { BenchDtype } from "./settings.ts";

const program = fileURLToPath(new URL("decode-in-process.ts", import.meta.url));
const runFile = promisify(execFile);

interface Decoded {
  readonly numBlocks: number;
  readonly speeds: Readonly<Record<string, number>>;
}

async function decode(dtype: BenchDtype, form: "moved" | "unmoved"): Promise<Decoded> {
  const { stdout } = await runFile(execPath, [program, dtype, form]);
  return JSON.parse(stdout) as Decoded;
}

export async function benchHugePages(rounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    const moved: Decoded[] = [];
    const unmoved: Decoded[] = [];
    for (let round = 0; round < rounds; round++) {
      unmoved.push(await decode(dtype, "unmoved"));
      moved.push(await decode(dtype, "moved"));
      reportProgress(`${dtype}, round ${round + 1} of ${rounds}: ${moved.at(-1)!.numBlocks} blocks of 2 MiB`);
    }
    for (const count of concurrencies) {
      figures.push(
        ratioFigure({
          name: `${dtype}, decode ${count} at once, with moved weights`,
          unit: "tok/s",
          ours: moved.map(({ speeds }) => speeds[count]!),
          theirs: unmoved.map(({ speeds }) => speeds[count]!),
          target: 1,
        }),
      );
    }
  }
  return figures;
}
