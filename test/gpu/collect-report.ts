/** A report for tests: checks are collected, and written nowhere that outlives the test. */
import { join } from "node:path";

import { describeMachine } from "./machine.ts";
import { Report } from "./report.ts";

export function collectReport(folder: string): Report {
  const header = { experiment: "test", title: "test", device: "cpu", machine: describeMachine() };
  return new Report(join(folder, "report.json"), header, () => {});
}

/** Names and details of what failed. */
export function failuresOf({ checks }: Report): string[] {
  return checks.filter(({ passed }) => !passed).map(({ name, detail = "" }) => `${name}: ${detail}`);
}
