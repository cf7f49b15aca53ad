/** The parser of LORA_MODULES. */
import { z } from "zod";

import type { LoraModule } from "../../engine/contract/config.ts";
import { parseJson } from "./json-values.ts";
import type { Parser } from "./setting.ts";
import { checkpointReference } from "./values.ts";

/** Every token passes through the matrices of all adapters. */
const MAX_MODULES = 64;
/** Much shorter than the name of a model in a request may be. */
const MAX_NAME_LENGTH = 256;
const name = z
  .string()
  .min(1)
  .max(MAX_NAME_LENGTH)
  .regex(/^[^\s,=]+$/);
const listed = z
  .array(z.object({ name, path: z.string().min(1) }))
  .min(1)
  .max(MAX_MODULES);

/**
 * vLLM's `[{"name": "a", "path": "org/adapter"}]`, or its shorter `a=org/adapter`, of which several are separated by commas
 * or spaces. Other fields of an object, such as `base_model_name`, change nothing.
 */
export function loraModules(): Parser<readonly LoraModule[]> {
  const reference = checkpointReference();
  return {
    expected:
      `up to ${MAX_MODULES} adapters as name=reference, ... or [{"name": ..., "path": ...}], with names that differ and ` +
      `have no space, comma or =, and references like those of MODEL`,
    parse(text) {
      const modules = listed.safeParse(/^[[{]/.test(text) ? [parseJson(text)].flat() : readShortForm(text)).data;
      if (modules === undefined || new Set(modules.map((module) => module.name)).size < modules.length)
        return undefined;
      const resolved = modules.map((module) => ({ name: module.name, path: reference.parse(module.path.trim()) }));
      return resolved.every((module): module is LoraModule => module.path !== undefined) ? resolved : undefined;
    },
  };
}

function readShortForm(text: string): object[] {
  const parts = text.split(/[\s,]+/).filter((part) => part !== "");
  return parts.map((part) => {
    const [name, ...path] = part.split("=");
    return { name, path: path.join("=") };
  });
}
