/**
 * A process without a test runner's module loader. Each argument is the name of a processor to load from the working
 * directory, `installed` for announced processors, or `class:` and the name of one to pass as a class. Prints the
 * results as JSON.
 */
import { EngineError, LogitsProcessor } from "../../../../engine/index.ts";
import { referToClasses } from "../../../../engine/sampling/custom/class-references.ts";
import { findInstalledProcessors } from "../../../../engine/sampling/custom/installed-processors.ts";
import { loadLogitsProcessors } from "../../../../engine/sampling/custom/processor-loading.ts";
import type { LoadedLogitsProcessor } from "../../../../engine/sampling/custom/processor-loading.ts";

export class InTheMainModule extends LogitsProcessor {
  override isArgmaxInvariant(): boolean {
    return true;
  }
  override updateState(): void {}
  override apply(logits: Parameters<LogitsProcessor["apply"]>[0]): typeof logits {
    return logits;
  }
}

const searchPath = ["."];

async function load(name: string): Promise<readonly LoadedLogitsProcessor[]> {
  if (name === "installed") return loadLogitsProcessors(await findInstalledProcessors(searchPath), searchPath);
  if (!name.startsWith("class:")) return loadLogitsProcessors([{ className: name, options: {} }], searchPath);
  const [, className] = name.split("class:");
  const given = className === "" ? InTheMainModule : (await load(className))[0].processorClass;
  return loadLogitsProcessors(await referToClasses([given]), []);
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
