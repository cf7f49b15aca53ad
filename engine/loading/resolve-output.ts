/** Decides what the decoder computes, and whether that is what the checkpoint was trained for. */
import { z } from "zod";

import type { EngineConfig, TaskName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import { logitsOutput, type DecoderOutput } from "../models/decoder-output.ts";
import { isClassifier } from "../models/registry.ts";
import { projectionOf } from "../models/retrieval/retriever.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";

/** Of sentence-transformers: the parts through which a text goes. */
const modulesFile = "modules.json";
const modules = z.array(z.looseObject({ path: z.string(), type: z.string() }));
const poolingConfig = z.looseObject({ pooling_mode: z.string().optional() });
const tokenId = z.int().min(0);
const logitScoreConfig = z.looseObject({ true_token_id: tokenId, false_token_id: tokenId.nullish() });
const classifierTokens = z.looseObject({ classifier_from_token: z.array(z.string()).min(1).max(2).optional() });

type OutputConfig = Pick<EngineConfig, "runner" | "classifierFromToken" | "logitsProcessors" | "speculativeConfig">;

interface OpenedParts {
  readonly checkpoint: Pick<Checkpoint, "config" | "onnxFileNames" | "readJson" | "tensors">;
  loadTokenizer(this: void): Promise<Pick<Tokenizer, "tokenId">>;
}

/**
 * A checkpoint with a projection of states embeds tokens. One scores pairs if the settings or config.json name the tokens of its classes, if it has a module LogitScore
 * of sentence-transformers, or if it has a layer `score` in place of its head.
 *
 * @throws EngineError `invalid_configuration` for settings that need text, or tokens that the tokenizer lacks,
 *   `unsupported_model` for a checkpoint whose embeddings or scores are computed in another way, `invalid_checkpoint` for
 *   wrong files.
 */
export async function resolveOutput(config: OutputConfig, opened: OpenedParts): Promise<DecoderOutput> {
  const { runner = "generate", classifierFromToken = null } = config;
  const { checkpoint } = opened;
  if (runner === "generate") {
    if (classifierFromToken !== null)
      throw refusal("generate, which computes text", "Leave out the classifier's tokens");
    const computesText = !isClassifier(checkpoint.config) && projectionOf(checkpoint) === null;
    if (!computesText) throw refusal("generate, which computes text", "This checkpoint has no head for text");
    return logitsOutput;
  }
  refuseText(config, checkpoint);
  const projection = projectionOf(checkpoint);
  if (projection !== null && classifierFromToken === null) return { kind: "tokens", projection };
  const tokens =
    classifierFromToken ?? parsed("config.json", classifierTokens, checkpoint.config).classifier_from_token;
  if (tokens !== undefined) {
    const tokenizer = await opened.loadTokenizer();
    return { kind: "classes", tokenIds: tokens.map((token) => tokenIdOf(tokenizer, token)) };
  }
  const ofModules = await readModules(checkpoint);
  if (ofModules !== null) return ofModules;
  if (!isClassifier(checkpoint.config)) return { kind: "states" };
  const numLabels = checkpoint.tensors.get("score.weight")?.shape[0] ?? 1;
  if (numLabels !== 1) throw unsupported(`it has ${numLabels} classes, and a score is a single one`, "scores");
  return { kind: "classes", tokenIds: null };
}

export function taskOf({ kind }: DecoderOutput): TaskName {
  return ({ logits: "generate", states: "embed", tokens: "token_embed", classes: "score" } as const)[kind];
}

function refuseText(
  { logitsProcessors, speculativeConfig = null }: OutputConfig,
  { onnxFileNames }: Pick<Checkpoint, "onnxFileNames">,
): void {
  const what = "pooling, which computes embeddings or scores";
  if (onnxFileNames !== null) throw refusal(what, "An ONNX export has logits only. Use the checkpoint's safetensors");
  if (logitsProcessors.length > 0)
    throw refusal(what, "Logits processors change text that is generated. Leave them out");
  if (speculativeConfig !== null) throw refusal(what, "Drafts are for text that is generated. Leave them out");
}

function refusal(runner: string, reason: string): EngineError {
  return new EngineError("invalid_configuration", `The runner is ${runner}. ${reason}.`, { setting: "runner" });
}

function tokenIdOf(tokenizer: Pick<Tokenizer, "tokenId">, token: string): number {
  const found = tokenizer.tokenId(token);
  if (found !== null) return found;
  throw new EngineError(
    "invalid_configuration",
    `The classifier's token ${shown(token)} is not in the vocabulary; write it as the tokenizer's file does.`,
    { setting: "classifierFromToken" },
  );
}

/** Null for a checkpoint whose modules say nothing else than that its last token is pooled. */
async function readModules(checkpoint: Pick<Checkpoint, "readJson">): Promise<DecoderOutput | null> {
  const content = await checkpoint.readJson(modulesFile);
  if (content === null) return null;
  let output: DecoderOutput | null = null;
  for (const { path, type } of parsed(modulesFile, modules, content)) {
    // `sentence_transformers.models.Pooling`
    const kind = type.slice(type.lastIndexOf(".") + 1);
    if (kind === "Transformer" || kind === "Normalize") continue;
    if (kind === "Pooling") await checkPooling(checkpoint, `${path}/config.json`);
    else if (kind === "LogitScore") output = await readLogitScore(checkpoint, `${path}/config.json`);
    else {
      const known = "only Transformer, Pooling, Normalize and LogitScore are computed";
      throw unsupported(`${modulesFile} has a module ${kind}; ${known}`);
    }
  }
  return output;
}

async function checkPooling(checkpoint: Pick<Checkpoint, "readJson">, name: string): Promise<void> {
  const modes = modesOf(await readModule(checkpoint, name, poolingConfig));
  if (modes.length === 1 && modes[0] === "lasttoken") return;
  throw unsupported(`${name} says that tokens are pooled by ${modes.join(", ")}; only lasttoken is computed`);
}

async function readLogitScore(checkpoint: Pick<Checkpoint, "readJson">, name: string): Promise<DecoderOutput> {
  const { true_token_id: yes, false_token_id: no = null } = await readModule(checkpoint, name, logitScoreConfig);
  return { kind: "classes", tokenIds: no === null ? [yes] : [no, yes] };
}

async function readModule<Schema extends z.ZodType>(
  checkpoint: Pick<Checkpoint, "readJson">,
  name: string,
  schema: Schema,
): Promise<z.output<Schema>> {
  const content = await checkpoint.readJson(name);
  if (content !== null) return parsed(name, schema, content);
  throw new EngineError("invalid_checkpoint", `The checkpoint lacks ${name}, which ${modulesFile} names.`);
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
  const form =
    name === "config.json" ? "a classifier_from_token of one or two texts" : "the form of sentence-transformers";
  throw new EngineError("invalid_checkpoint", `${name} of the checkpoint does not have ${form}.`);
}

function unsupported(reason: string, what = "embeddings"): EngineError {
  return new EngineError("unsupported_model", `The ${what} of this checkpoint are not served: ${reason}.`);
}
