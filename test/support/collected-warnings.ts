/** The warnings of this process, for tests of what reaches the log. */
import process from "node:process";
import { onTestFinished } from "vitest";

/** The live list of their messages until the test ends. Node delivers a warning in the next tick. */
export function collectWarnings(): readonly string[] {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error): void => void warnings.push(message);
  process.on("warning", onWarning);
  onTestFinished(() => void process.off("warning", onWarning));
  return warnings;
}
