/** Shows the progress of a download, a quantisation or a batch: bars on a terminal, log lines elsewhere. */
import { MultiBar, Presets } from "cli-progress";
import type { SingleBar } from "cli-progress";

import type { LoadProgress } from "../../engine/index.ts";
import type { Logger } from "../logger.ts";

/** One log line per this many per cent. */
const LINE_STEP_PERCENT = 10;

export interface Progress extends Omit<LoadProgress, "unit"> {
  readonly unit: LoadProgress["unit"] | "tokens" | "embeddings" | "scores" | "lines";
}

export interface ProgressDisplay {
  readonly show: (progress: Progress) => void;
  readonly stop: () => void;
}

export function createProgressDisplay(terminal: NodeJS.WriteStream, logger: Logger): ProgressDisplay {
  return terminal.isTTY ? createBars(terminal) : createLines(logger);
}

function createBars(terminal: NodeJS.WriteStream): ProgressDisplay {
  const format = " {bar} {percentage}% | {task} | {amount}";
  const bars = new MultiBar(
    { stream: terminal, hideCursor: true, clearOnComplete: false, format },
    Presets.shades_grey,
  );
  const barOfTask = new Map<string, SingleBar>();
  // Bars hide the cursor and turn line wrapping off.
  const stop = (): void => {
    if (bars.isActive) bars.stop();
  };
  process.once("exit", stop);
  return {
    show(progress) {
      const { task, completed, total } = progress;
      let bar = barOfTask.get(task);
      if (bar === undefined) {
        bar = bars.create(total, 0, { task, amount: "" });
        barOfTask.set(task, bar);
      }
      bar.setTotal(total);
      bar.update(completed, { task, amount: formatAmount(progress) });
    },
    stop,
  };
}

function createLines(logger: Logger): ProgressDisplay {
  const lastStepOfTask = new Map<string, number>();
  return {
    show(progress) {
      const percent = progress.total === 0 ? 100 : Math.floor((progress.completed / progress.total) * 100);
      const step = Math.floor(percent / LINE_STEP_PERCENT);
      if (lastStepOfTask.get(progress.task) === step) return;
      lastStepOfTask.set(progress.task, step);
      logger.info(progress.task, { percent, amount: formatAmount(progress) });
    },
    stop() {},
  };
}

function formatAmount({ completed, total, unit }: Progress): string {
  if (unit !== "bytes") return `${completed}/${total} ${unit}`;
  const mebibytes = (bytes: number): string => (bytes / 1024 ** 2).toFixed(1);
  return `${mebibytes(completed)}/${mebibytes(total)} MiB`;
}
