/**
 * A process without a test runner's module loader. Each argument is the name of a processor to load from the working
 * directory, or `installed` for those that packages announce. Prints the result of each as JSON.
 */
import { EngineError } from "../../../../engine/index.ts";
import { findInstalledProcessors } from "../../../../engine/sampling/custom/installed-processors.ts";
import { loadLogitsProcessors } from "../../../../engine/sampling/custom/processor-loading.ts";
import type { LoadedLogitsProcessor } from "../../../../engine/sampling/custom/processor-loading.ts";

const searchPath = ["."];

async function load(name: string): Promise<readonly LoadedLogitsProcessor[]> {
  if (name === "installed") return loadLogitsProcessors(await findInstalledProcessors(searchPath), searchPath);
  return loadLogitsProcessors([{ className: name, options: {} }], searchPath);
}

const results: string[] = [];
for (const name of process.argv.slice(2)) {
  try {
    const loaded = await load(name);
    results.push(loaded.map(({ name, reference }) => `${name} is ${reference.className}`).join("; "));
  } catch (error) {
    results.push(error instanceof EngineError ? error.message : `unexpected: ${String(error)}`);
  }
}
process.stdout.write(JSON.stringify(results));
