/** Imports what a name like `module:Export` means, for plug-ins of any kind. */
import { loadedWithin, LoadingTimeout } from "../../loaded-within.ts";
import { reasonOf } from "../contract/row-failures.ts";
import { findProcessorModule } from "./find-processor-module.ts";
import { walkExports } from "./processor-class.ts";
import { prepareProcessorModules } from "./processor-modules.ts";
import { parseProcessorName } from "./processor-name.ts";

export interface FoundExport {
  /** `file:` URL of the module. */
  readonly url: string;
  readonly exportPath: readonly string[];
  readonly value: unknown;
}

/**
 * Modules are found like those of logits processors; see `findProcessorModule`. Throws an Error that says what is wrong
 * with the name or its module.
 */
export async function importExport(name: string, searchPath: readonly string[]): Promise<FoundExport> {
  const { modulePath, exportPath } = parseProcessorName(name);
  prepareProcessorModules();
  const url = await findProcessorModule(modulePath, searchPath);
  return { url, exportPath, value: walkExports(await importModule(url), exportPath) };
}

async function importModule(url: string): Promise<unknown> {
  try {
    return await loadedWithin(import(url));
  } catch (cause) {
    if (cause instanceof LoadingTimeout) throw new Error(`${cause.message}. Its module is ${url}.`, { cause });
    const message = reasonOf(cause);
    const isCommonJs = /outside a module|ES module syntax|Unexpected token 'export'/.test(message);
    const advice = isCommonJs ? ' Does the package.json beside it lack "type": "module"?' : "";
    throw new Error(`its module ${url} threw when it was imported: ${message}${advice}`, { cause });
  }
}
