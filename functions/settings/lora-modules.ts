/** The parsers of LORA_MODULES and DEFAULT_MM_LORAS. */
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

/** The name of the adapter for pictures, as vLLM names it. */
const imageLoraName = "image";

const byModality = z.strictObject({ image: z.string().min(1) });

/** vLLM's `--default-mm-loras` with an adapter for pictures. It has the name `image`, by which requests may choose it, too. */
export function defaultMmLoras(): Parser<readonly LoraModule[]> {
  const reference = checkpointReference();
  return {
    expected: '{"image": reference}, with a reference like those of MODEL; there are no adapters for other modalities',
    parse(text) {
      const given = byModality.safeParse(parseJson(text)).data;
      const path = given && reference.parse(given.image.trim());
      return path === undefined ? undefined : [{ name: imageLoraName, path, isDefaultForImages: true }];
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
