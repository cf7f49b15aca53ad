/** Converts the options of a call to the engine's request. */
import { InvalidArgumentError, UnsupportedFunctionalityError } from "@ai-sdk/provider";
import type { LanguageModelV4CallOptions, SharedV4ProviderOptions, SharedV4Warning } from "@ai-sdk/provider";
import { z } from "zod";

import { createSamplingParams, documentContents } from "../../engine/index.ts";
import type {
  ChatPromptInput,
  GenerationRequest,
  JsonObject,
  SamplingParams,
  StructuredOutput,
  ToolDefinition,
} from "../../engine/index.ts";
import type { ModelFormats } from "../generation/parsed-output/model-formats.ts";
import type { OutputParsing } from "../generation/parsed-output/output-parser.ts";
import { planTools, UnenforceableTool } from "../generation/parsed-output/tool-plan.ts";
import type { ToolPlan, ToolRequest } from "../generation/parsed-output/tool-plan.ts";
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
  /** Name of a LoRA adapter of the engine. */
  adapter: z.string().optional(),
  mmProcessorOptions: z.record(z.string(), z.unknown()).optional(),
  /** Which frames of all videos of the prompt are shown. */
  videoSampling: z
    .union(
      [z.strictObject({ numFrames: z.number() }), z.strictObject({ framesPerSecond: z.number() })],
      "must be {numFrames} or {framesPerSecond}, a number",
    )
    .optional(),
  /** Which pages of all documents of the prompt are shown, and how. */
  documentPages: z
    .strictObject({
      firstPage: z.number().optional(),
      lastPage: z.number().optional(),
      dotsPerInch: z.number().optional(),
      content: z.enum(documentContents).optional(),
    })
    .optional(),
});

type FoveaOptions = z.output<typeof foveaOptions>;

/**
 * @param defaults The checkpoint's defaults, for settings that the call leaves open.
 * @throws UnsupportedFunctionalityError for an unsupported prompt or strict tool, InvalidArgumentError for invalid
 * `providerOptions.fovea`, EngineError `invalid_argument` for values out of range.
 */
export function toGenerationRequest(
  options: LanguageModelV4CallOptions,
  defaults: Partial<SamplingParams>,
  formats: ModelFormats,
): {
  readonly request: Omit<GenerationRequest, "requestId">;
  readonly parsing: OutputParsing;
  readonly warnings: SharedV4Warning[];
} {
  const own = parseFoveaOptions(options.providerOptions);
  const { cacheSalt, adapter, mmProcessorOptions, videoSampling, documentPages } = own;
  const answerForm = structuredOutputOf(options.responseFormat, own);
  const plan = planOf(options, answerForm, formats);
  const prompt: ChatPromptInput = {
    kind: "chat",
    messages: toChatMessages(options.prompt),
    addGenerationPrompt: true,
    ...(plan !== null && { tools: plan.parsing.tools }),
    ...templateArguments(options, formats),
  };
  const request = {
    prompt,
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
      structuredOutput: plan?.structuredOutput ?? answerForm,
      keptSpecialTokens: plan?.parsing.format.specialTokens,
      reasoning: formats.reasoning === null ? null : { ...formats.reasoning, tokenBudget: null },
    }),
    ...(cacheSalt !== undefined && { cacheSalt }),
    ...(adapter !== undefined && { adapter }),
    ...(mmProcessorOptions !== undefined && { mmProcessorOptions }),
    ...(videoSampling !== undefined && { videoSampling }),
    ...(documentPages !== undefined && { documentPages }),
  } as const;
  const parsing = { toolCalls: plan?.parsing ?? null, reasoning: formats.reasoning, includesReasoning: true };
  return { request, parsing, warnings: warningsOf(options, formats) };
}

function planOf(
  { tools = [], toolChoice }: LanguageModelV4CallOptions,
  answerForm: StructuredOutput | null,
  formats: ModelFormats,
): ToolPlan | null {
  const definitions = tools.flatMap((tool): ToolDefinition[] => {
    if (tool.type !== "function") return [];
    const { name, description = null, inputSchema, strict = false } = tool;
    return [{ name, description, parameters: inputSchema as JsonObject, strict }];
  });
  try {
    const choice = toToolChoice(toolChoice);
    const schemaField = ({ name }: ToolDefinition): string => `tools.${name}.inputSchema`;
    return planTools({ tools: definitions, choice, isParallel: true, answerForm, schemaField }, formats.toolCalls);
  } catch (error) {
    if (!(error instanceof UnenforceableTool)) throw error;
    const { name } = error.tool;
    throw new UnsupportedFunctionalityError({
      functionality: "strict tools",
      message: `tools.${name}: ${error.message}.`,
    });
  }
}

function toToolChoice(choice: LanguageModelV4CallOptions["toolChoice"]): ToolRequest["choice"] {
  if (choice === undefined) return "auto";
  return choice.type === "tool" ? { named: choice.toolName } : choice.type;
}

/** An effort is a variable of the chat template; see `docs/tools-and-reasoning.md`. */
function templateArguments(
  { reasoning }: LanguageModelV4CallOptions,
  formats: ModelFormats,
): Pick<ChatPromptInput, "templateArguments"> {
  if (reasoning === undefined || reasoning === "provider-default" || formats.reasoning === null) return {};
  return {
    templateArguments: { reasoning_effort: reasoning, ...(reasoning === "none" && { enable_thinking: false }) },
  };
}

function parseFoveaOptions(providerOptions: SharedV4ProviderOptions | undefined): FoveaOptions {
  const parsed = foveaOptions.safeParse(providerOptions?.fovea ?? {});
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0]!;
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

function warningsOf({ tools = [], reasoning }: LanguageModelV4CallOptions, formats: ModelFormats): SharedV4Warning[] {
  const warnings: SharedV4Warning[] = [];
  for (const tool of tools) {
    if (tool.type === "function") continue;
    warnings.push({ type: "unsupported", feature: `tool ${tool.id}`, details: "The engine runs no tools itself." });
  }
  const asksForEffort = reasoning !== undefined && reasoning !== "provider-default" && reasoning !== "none";
  if (asksForEffort && formats.reasoning === null) {
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
