/** Converts the options of a call to the engine's request. */
import { InvalidArgumentError, UnsupportedFunctionalityError } from "@ai-sdk/provider";
import type { LanguageModelV4CallOptions, SharedV4ProviderOptions, SharedV4Warning } from "@ai-sdk/provider";
import { z } from "zod";

import { createSamplingParams } from "../../engine/index.ts";
import type { GenerationRequest, SamplingParams, StructuredOutput } from "../../engine/index.ts";
import { toChatMessages } from "./chat-messages.ts";

const argument = z.union([z.string(), z.number(), z.boolean()]);

/** `providerOptions.fovea`: options that the AI SDK does not have. */
const foveaOptions = z.strictObject({
  minP: z.number().optional(),
  repetitionPenalty: z.number().optional(),
  minTokens: z.number().optional(),
  ignoreEos: z.boolean().optional(),
  /** Ends an output that repeats itself, with the finish reason `other` (raw: `repetition`). */
  repetitionDetection: z
    .strictObject({ maxPatternSize: z.number(), minPatternSize: z.number().default(0), minCount: z.number() })
    .optional(),
  badWords: z.array(z.string()).optional(),
  allowedTokenIds: z.array(z.number()).optional(),
  /** Arguments for logits processors, like `vllm_xargs` over HTTP. */
  extraArgs: z.record(z.string(), z.union([argument, z.array(argument)])).optional(),
  /** At most one of these three, and not together with `output`. */
  regex: z.string().optional(),
  choice: z.array(z.string()).optional(),
  grammar: z.string().optional(),
  cacheSalt: z.string().optional(),
  mmProcessorOptions: z.record(z.string(), z.unknown()).optional(),
});

type FoveaOptions = z.output<typeof foveaOptions>;

/**
 * @param defaults The checkpoint's defaults, for settings that the call leaves open.
 * @throws UnsupportedFunctionalityError for an unsupported prompt or tool choice, InvalidArgumentError for invalid
 * `providerOptions.fovea`, EngineError `invalid_argument` for values out of range.
 */
export function toGenerationRequest(
  options: LanguageModelV4CallOptions,
  defaults: Partial<SamplingParams>,
): { readonly request: Omit<GenerationRequest, "requestId">; readonly warnings: SharedV4Warning[] } {
  const { toolChoice } = options;
  if (toolChoice?.type === "required" || toolChoice?.type === "tool") {
    throw new UnsupportedFunctionalityError({ functionality: `toolChoice ${toolChoice.type}` });
  }
  const own = parseFoveaOptions(options.providerOptions);
  const { cacheSalt, mmProcessorOptions } = own;
  const request = {
    prompt: { kind: "chat", messages: toChatMessages(options.prompt), addGenerationPrompt: true },
    samplingParams: createSamplingParams({
      ...defaults,
      ...definedOf({
        temperature: options.temperature,
        topP: options.topP,
        topK: options.topK,
        minP: own.minP,
        presencePenalty: options.presencePenalty,
        frequencyPenalty: options.frequencyPenalty,
        repetitionPenalty: own.repetitionPenalty,
        seed: options.seed,
        maxTokens: options.maxOutputTokens,
        minTokens: own.minTokens,
        stop: options.stopSequences,
        ignoreEos: own.ignoreEos,
        repetitionDetection: own.repetitionDetection,
        badWords: own.badWords,
        allowedTokenIds: own.allowedTokenIds,
        extraArgs: own.extraArgs,
      }),
      structuredOutput: structuredOutputOf(options.responseFormat, own),
    }),
    ...(cacheSalt !== undefined && { cacheSalt }),
    ...(mmProcessorOptions !== undefined && { mmProcessorOptions }),
  } as const;
  return { request, warnings: warningsOf(options) };
}

function parseFoveaOptions(providerOptions: SharedV4ProviderOptions | undefined): FoveaOptions {
  const parsed = foveaOptions.safeParse(providerOptions?.fovea ?? {});
  if (parsed.success) return parsed.data;
  const [{ path, message }] = parsed.error.issues;
  throw new InvalidArgumentError({
    argument: ["providerOptions", "fovea", ...path].join("."),
    message: `${["providerOptions", "fovea", ...path].join(".")}: ${message}.`,
    cause: parsed.error,
  });
}

function structuredOutputOf(
  format: LanguageModelV4CallOptions["responseFormat"],
  { regex, choice, grammar }: FoveaOptions,
): StructuredOutput | null {
  const given: StructuredOutput[] = [];
  if (regex !== undefined) given.push({ kind: "regex", pattern: regex });
  if (choice !== undefined) given.push({ kind: "choice", choices: choice });
  if (grammar !== undefined) given.push({ kind: "grammar", grammar });
  if (format?.type === "json") {
    const { schema } = format;
    given.push(
      schema === undefined ? { kind: "json-object" } : { kind: "json-schema", schema: JSON.stringify(schema) },
    );
  }
  if (given.length <= 1) return given[0] ?? null;
  throw new InvalidArgumentError({
    argument: "providerOptions.fovea",
    message: `A text can have only one form; got ${given.map(({ kind }) => kind).join(" and ")}.`,
  });
}

function warningsOf({ tools = [], toolChoice, reasoning }: LanguageModelV4CallOptions): SharedV4Warning[] {
  const warnings: SharedV4Warning[] = [];
  if (tools.length > 0 && toolChoice?.type !== "none") {
    warnings.push({ type: "unsupported", feature: "tools", details: "The model answers without calling tools." });
  }
  if (reasoning !== undefined && reasoning !== "provider-default" && reasoning !== "none") {
    warnings.push({
      type: "unsupported",
      feature: "reasoning",
      details: "The model has no setting for reasoning effort.",
    });
  }
  return warnings;
}

function definedOf<Fields extends object>(fields: Fields): Partial<Fields> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<Fields>;
}
