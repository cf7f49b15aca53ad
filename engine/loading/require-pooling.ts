/** Whether an engine that computes embeddings gives those that the checkpoint was trained for. */
import { z } from "zod";

import type { EngineConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";

/** Of sentence-transformers: the parts through which a text goes. */
const modulesFile = "modules.json";
const modules = z.array(z.looseObject({ path: z.string(), type: z.string() }));
const poolingConfig = z.looseObject({ pooling_mode: z.string().optional() });

/**
 * Does nothing for an engine that generates text.
 *
 * @throws EngineError `invalid_configuration` for settings that need text, `unsupported_model` for a checkpoint of
 *   sentence-transformers whose embeddings are computed in another way, `invalid_checkpoint` for its wrong files.
 */
export async function requirePooling(
  { runner = "generate", logitsProcessors, speculativeConfig = null }: EngineConfig,
  checkpoint: Pick<Checkpoint, "onnxFileNames" | "readJson">,
): Promise<void> {
  if (runner === "generate") return;
  if (checkpoint.onnxFileNames !== null)
    throw refusal("An ONNX export has logits only. Use the checkpoint's safetensors");
  if (logitsProcessors.length > 0) throw refusal("Logits processors change text that is generated. Leave them out");
  if (speculativeConfig !== null) throw refusal("Drafts are for text that is generated. Leave them out");
  await checkModules(checkpoint);
}

function refusal(reason: string): EngineError {
  const message = `The runner is pooling, which computes embeddings. ${reason}.`;
  return new EngineError("invalid_configuration", message, { setting: "runner" });
}

async function checkModules(checkpoint: Pick<Checkpoint, "readJson">): Promise<void> {
  const content = await checkpoint.readJson(modulesFile);
  if (content === null) return;
  for (const { path, type } of parsed(modulesFile, modules, content)) {
    // `sentence_transformers.models.Pooling`
    const kind = type.slice(type.lastIndexOf(".") + 1);
    if (kind === "Transformer" || kind === "Normalize") continue;
    if (kind === "Pooling") await checkPooling(checkpoint, `${path}/config.json`);
    else throw unsupported(`${modulesFile} has a module ${kind}; only Transformer, Pooling and Normalize are computed`);
  }
}

async function checkPooling(checkpoint: Pick<Checkpoint, "readJson">, name: string): Promise<void> {
  const content = await checkpoint.readJson(name);
  if (content === null) {
    throw new EngineError("invalid_checkpoint", `The checkpoint lacks ${name}, which ${modulesFile} names.`);
  }
  const modes = modesOf(parsed(name, poolingConfig, content));
  if (modes.length === 1 && modes[0] === "lasttoken") return;
  throw unsupported(`${name} says that tokens are pooled by ${modes.join(", ")}; only lasttoken is computed`);
}

/** Older files have a flag for each mode: `pooling_mode_lasttoken`, `pooling_mode_mean_tokens`. */
function modesOf({ pooling_mode: mode, ...flags }: z.output<typeof poolingConfig>): string[] {
  if (mode !== undefined) return [mode];
  const prefix = "pooling_mode_";
  return Object.entries(flags).flatMap(([name, value]) =>
    name.startsWith(prefix) && value === true ? [name.slice(prefix.length)] : [],
  );
}

function parsed<Schema extends z.ZodType>(name: string, schema: Schema, content: unknown): z.output<Schema> {
  const result = schema.safeParse(content);
  if (result.success) return result.data;
  throw new EngineError(
    "invalid_checkpoint",
    `${name} of the checkpoint does not have the form of sentence-transformers.`,
  );
}

function unsupported(reason: string): EngineError {
  return new EngineError("unsupported_model", `The embeddings of this checkpoint are not served: ${reason}.`);
}
