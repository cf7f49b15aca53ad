/** Loads the logits processors of settings and packages one by one, and reports for each whether it loads. */
import type { EngineConfig, LogitsProcessorReference } from "../../contract/config.ts";
import { isBuiltIn } from "./built-in-names.ts";
import { askArgmaxInvariance } from "./custom-processor.ts";
import { findInstalledProcessors } from "./installed-processors.ts";
import { createLogitsProcessor, loadLogitsProcessors } from "./processor-loading.ts";

export interface TriedLogitsProcessor {
  readonly name: string;
  /** Null if it loads and can be constructed, or is built in. */
  readonly error: string | null;
}

/** In the order of application. Throws EngineError `invalid_logits_processor` for a package's invalid announcement. */
export async function tryLogitsProcessors(config: EngineConfig): Promise<TriedLogitsProcessor[]> {
  const installed = await findInstalledProcessors(config.logitsProcessorPath);
  const tried: TriedLogitsProcessor[] = [];
  for (const reference of [...installed, ...config.logitsProcessors]) {
    tried.push({ name: reference.name ?? reference.className, error: await errorOf(reference, config) });
  }
  return tried;
}

async function errorOf(reference: LogitsProcessorReference, config: EngineConfig): Promise<string | null> {
  if (isBuiltIn(reference)) return null;
  try {
    const loaded = (await loadLogitsProcessors([reference], config.logitsProcessorPath))[0]!;
    askArgmaxInvariance(createLogitsProcessor(loaded, config), loaded.name);
    return null;
  } catch (error) {
    // The cause has the message without the processor's position.
    const { message, cause } = error as Error;
    return cause instanceof Error ? cause.message : message;
  }
}
