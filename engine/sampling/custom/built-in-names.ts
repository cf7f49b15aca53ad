/** Names under which other servers load rules that every request can use here. */
import type { LogitsProcessorReference } from "../../contract/config.ts";

/** Of vLLM, and of MinerU's package for it: both exclude repeated n-grams, by the same arguments as the built-in rule. */
const builtInNames: ReadonlySet<string> = new Set([
  "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor",
  "mineru_vl_utils:MinerULogitsProcessor",
]);

/** Whether there is nothing to load for the name. */
export function isBuiltIn({ className }: LogitsProcessorReference): boolean {
  return builtInNames.has(className);
}
