/** Applies a request's or a deployment's changes to an image processor's options. */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import type { EngineErrorCode } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import type { CanonicalValue } from "../multimodal/hasher.ts";
import type { MultiModalProcessor, ProcessorOptions } from "../multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../multimodal/processing-info.ts";
import { optionsWithoutEffect } from "../multimodal/processor-options.ts";
import { readBySchema } from "../schema-problem.ts";

/** The part of a processor with its options; `requestOptions` is empty for a model without an image processor. */
export type OptionHolder = Pick<MultiModalProcessor, "options" | "requestOptions" | "replacedOptions" | "checkOptions">;

/** For text-only models. */
export const noImageProcessor: OptionHolder = { options: {}, requestOptions: new Set(), checkOptions: () => {} };

/**
 * Returns the checkpoint's options overridden by the request's. If nothing changes, returns the processor's own object.
 * An option that is null keeps the checkpoint's value. Throws EngineError `invalid_argument` for a name that requests
 * may not set and for an unsupported value; `parameter` is its path (`mmProcessorOptions.image_std[0]`).
 */
export function requestOptions(
  processor: OptionHolder,
  changes: Readonly<Record<string, unknown>> = {},
): ProcessorOptions {
  return changedOptions(processor, changes, (path, message, cause) =>
    refusal("invalid_argument", path, message, cause),
  );
}

/** Like `requestOptions`, for the changes of a deployment. Throws EngineError `invalid_configuration`. */
export function deploymentOptions(
  processor: OptionHolder,
  changes: Readonly<Record<string, unknown>>,
): ProcessorOptions {
  return changedOptions(processor, changes, (path, message, cause) => optionsError(message, cause, path));
}

/** True if a processor does not support its options; other errors have nothing to do with them. */
export function isAboutOptions(error: unknown): error is EngineError {
  return error instanceof EngineError && (error.code === "invalid_checkpoint" || error.code === "unsupported_model");
}

/** Blames the options that a deployment changed: the checkpoint's own options worked. */
export function optionsError(reason: string, cause?: unknown, path = ""): EngineError {
  return refusal(
    "invalid_configuration",
    path,
    `The image processor cannot apply its options from the settings (mm_processor_kwargs): ${reason}`,
    cause,
  );
}

/**
 * A request's options can give an image more embeddings than the engine has room for.
 *
 * @param hasOwnOptions Whether the options are the checkpoint's, so that the model itself counts wrongly.
 */
export function tooManyEmbeddings(
  numEmbeddings: number,
  { maxTokensPerItem }: Pick<ProcessingInfo, "maxTokensPerItem">,
  hasOwnOptions: boolean,
): EngineError {
  if (hasOwnOptions) {
    return new EngineError(
      "internal",
      `An image has ${numEmbeddings} embeddings with the model's own options; its maxTokensPerItem is ${maxTokensPerItem}.`,
    );
  }
  return refusal(
    "invalid_argument",
    "",
    `An image has ${numEmbeddings} embeddings with the request's options; the engine has room for ${maxTokensPerItem}.`,
  );
}

/** `path` is empty for the options as a whole. `message` is a sentence. */
type Refuse = (path: string, message: string, cause?: unknown) => EngineError;

function refusal(code: EngineErrorCode, path: string, message: string, cause?: unknown): EngineError {
  const parameter = path === "" ? "mmProcessorOptions" : `mmProcessorOptions.${path}`;
  return new EngineError(code, message, { cause, parameter });
}

interface Change {
  readonly value: unknown;
  /** Where the option was given: `image_std` or `images_kwargs.image_std`. */
  readonly path: string;
}

function changedOptions(
  processor: OptionHolder,
  changes: Readonly<Record<string, unknown>>,
  refuse: Refuse,
): ProcessorOptions {
  const changed = new Map<string, CanonicalValue>();
  const paths = new Map<string, string>();
  for (const [name, { value, path }] of flatChanges(changes, refuse)) {
    if (Object.hasOwn(optionsWithoutEffect, name)) {
      checkWithoutEffect(name, value, path, refuse);
      continue;
    }
    if (!processor.requestOptions.has(name)) {
      // Clients repeat the options of the checkpoint.
      if (Object.hasOwn(processor.options, name) && isDeepStrictEqual(value, processor.options[name])) continue;
      throw refuse(shortPath(path), whyUnknown(processor, path));
    }
    if (!isSmallJson(value)) {
      throw refuse(path, `${path} is not a JSON value with at most ${MAX_DEPTH} levels and ${MAX_VALUES} values.`);
    }
    changed.set(name, value);
    paths.set(name, path);
  }
  if (changed.size === 0) return processor.options;

  const replaced = new Set([...changed.keys()].flatMap((name) => processor.replacedOptions?.[name] ?? []));
  const kept = Object.entries(processor.options).filter(([name]) => !replaced.has(name));
  const options = Object.fromEntries([...kept, ...changed]);
  try {
    processor.checkOptions(options);
  } catch (error) {
    throw isAboutOptions(error) ? placed(error, paths, refuse) : error;
  }
  return options;
}

/** transformers' names of objects that may contain image options. */
const nestedOptions: ReadonlySet<string> = new Set(["images_kwargs", "common_kwargs"]);

function flatChanges(changes: Readonly<Record<string, unknown>>, refuse: Refuse): Map<string, Change> {
  const flat = new Map<string, Change>();
  const add = (name: string, value: unknown, path: string): void => {
    if (value === null) return;
    const other = flat.get(name);
    if (other !== undefined) throw refuse(path, `${path} is given twice, also as ${other.path}; leave one out.`);
    flat.set(name, { value, path });
  };
  for (const [name, value] of Object.entries(changes)) {
    if (!nestedOptions.has(name)) {
      add(name, value, name);
    } else if (typeof value === "object" && !Array.isArray(value)) {
      for (const [inner, innerValue] of Object.entries(value ?? {})) add(inner, innerValue, `${name}.${inner}`);
    } else {
      throw refuse(name, `${name} is ${shown(value)}; expected an object of options.`);
    }
  }
  return flat;
}

function checkWithoutEffect(name: string, value: unknown, path: string, refuse: Refuse): void {
  const schema = optionsWithoutEffect[name as keyof typeof optionsWithoutEffect] as z.ZodType;
  const result = readBySchema(schema, value);
  if (!result.isValid) throw refuse(path, `${path} ${result.problem}.`);
}

function whyUnknown({ requestOptions: known }: OptionHolder, path: string): string {
  const unknown = `${shortPath(path)} cannot be set`;
  if (known.size === 0) return `${unknown}: this model has no image processor.`;
  return `${unknown}; the options of this model's image processor that can be set are ${[...known].join(", ")}.`;
}

/** The processor's message with the path under which the option was given. */
function placed(error: EngineError, paths: ReadonlyMap<string, string>, refuse: Refuse): EngineError {
  const { message, parameter } = error;
  const name = /^[^.[]*/.exec(parameter ?? "")![0];
  const path = paths.get(name);
  // The checkpoint set this option, which contradicts a changed one.
  if (path === undefined || parameter === null)
    return refuse("", `The image processor cannot apply: ${message}`, error);
  const prefix = path.slice(0, path.length - name.length);
  return refuse(`${prefix}${parameter}`, `${prefix}${message}`, error);
}

const MAX_PATH_CHARACTERS = 80;

/** Unknown names may have any length. */
function shortPath(path: string): string {
  return path.length > MAX_PATH_CHARACTERS ? `${path.slice(0, MAX_PATH_CHARACTERS)}…` : path;
}

/** Options of real processors have two levels and six values. More could exhaust the stack or keep the thread busy. */
const MAX_DEPTH = 8;
const MAX_VALUES = 1000;

function isSmallJson(value: unknown): value is CanonicalValue {
  let numValues = 0;
  const isSmall = (member: unknown, depth: number): boolean => {
    numValues++;
    if (numValues > MAX_VALUES) return false;
    if (member === null || typeof member === "boolean" || typeof member === "string") return true;
    if (typeof member === "number") return true;
    if (typeof member !== "object" || depth === 0) return false;
    if (Array.isArray(member) && member.length > MAX_VALUES) return false;
    for (const key in member) {
      if (!isSmall((member as Readonly<Record<string, unknown>>)[key], depth - 1)) return false;
    }
    return true;
  };
  return isSmall(value, MAX_DEPTH);
}
