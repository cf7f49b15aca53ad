/** Renders a conversation with a checkpoint's chat template. */
import { z } from "zod";

import { callWithin, CallTimeout } from "../call-within.ts";
import type { ChatTemplateContentFormat } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { JsonObject } from "../contract/tools.ts";
import { describeError, excerpt } from "../excerpt.ts";
import { templateFileName, toolTemplateFileName } from "../weights/checkpoint-files.ts";
import { readRegularFile } from "../weights/regular-file.ts";
import { detectContentFormat, detectPairRoles } from "./content-format.ts";
import type { ContentFormat } from "./content-format.ts";
import { JinjaTemplate } from "./jinja/template.ts";
import { asText, Callable } from "./jinja/values.ts";
import { parseCheckpointJson, parseTokenizerConfig, tryReadCheckpointFile } from "./tokenizer-json.ts";

type TemplatePart = { readonly type: "text"; readonly text: string } | { readonly type: "image" | "video" };

/** A message as transformers passes it to a template. */
export interface TemplateMessage {
  readonly role: string;
  /** A string for the template's `contentFormat` "string" or "spelled", a list of parts for "parts". */
  readonly content: string | readonly TemplatePart[];
  readonly name?: string;
  readonly tool_calls?: readonly {
    readonly type: "function";
    readonly id: string;
    readonly function: { readonly name: string; readonly arguments: JsonObject };
  }[];
  readonly tool_call_id?: string;
  /** Templates read the thinking under one of these names, such as that of LFM2.5 under the last. */
  readonly reasoning_content?: string;
  readonly reasoning?: string;
  readonly thinking?: string;
}

/** A tool as transformers passes it to a template. */
export interface TemplateTool {
  readonly type: "function";
  readonly function: { readonly name: string; readonly description?: string; readonly parameters: JsonObject };
}

export interface RenderOptions {
  readonly addGenerationPrompt: boolean;
  /** None in the template if there are none, as in transformers. */
  readonly tools?: readonly TemplateTool[];
  /** Further variables. They cannot replace those of the conversation. */
  readonly templateArguments?: JsonObject;
}

export interface ChatTemplateOptions {
  /** The file of the checkpoint that contains the template, for errors. */
  readonly fileName?: string;
  /** Where the template is from, for errors. */
  readonly owner?: "checkpoint" | "settings";
  /** The checkpoint's own template for conversations with tools. */
  readonly forTools?: ChatTemplate | null;
  /** Default: detected in the template. */
  readonly contentFormat?: ContentFormat;
  /** Whether a detected format that accepts texts becomes `spelled`. Default false. */
  readonly spellsImages?: boolean;
}

/**
 * Other requests wait meanwhile. The templates of 25 model families render 4,000 messages, 10 MB of text or 256 tools in
 * less than 200 ms.
 */
const MAX_RENDER_MS = 1000;

/** Thrown by a template's `raise_exception`: the model does not accept the conversation. */
class TemplateRefusal extends Error {}

const raiseException = new Callable("raise_exception", ([message = ""]) => {
  throw new TemplateRefusal(asText(message));
});

export class ChatTemplate {
  readonly contentFormat: ContentFormat;
  /** Whether it has roles for the query and the document of a reranker. */
  readonly writesPairs: boolean;
  /** The Jinja text, which shows the model's formats of tools and thinking. */
  readonly source: string;
  /** The template for conversations with tools: another one, or this one. */
  readonly forTools: ChatTemplate;
  readonly #template: JinjaTemplate;
  readonly #namedTokens: Readonly<Record<string, string>>;
  /** In errors. */
  readonly #title: string;

  /**
   * @param namedTokens `bos_token` and so on.
   * @throws EngineError `invalid_checkpoint` for a template that is not Jinja.
   */
  constructor(source: string, namedTokens: Readonly<Record<string, string>>, options: ChatTemplateOptions = {}) {
    const { fileName, forTools, contentFormat, spellsImages = false, owner = "checkpoint" } = options;
    this.#title = `The chat template of the ${owner}${fileName === undefined ? "" : ` (${fileName})`}`;
    try {
      this.#template = new JinjaTemplate(source);
    } catch (error) {
      throw new EngineError("invalid_checkpoint", `${this.#title} is not valid Jinja (${describeError(error)}).`, {
        cause: error,
      });
    }
    this.source = source;
    this.forTools = forTools ?? this;
    const detected = detectContentFormat(this.#template.body);
    this.writesPairs = detectPairRoles(this.#template.body);
    this.contentFormat = contentFormat ?? (spellsImages && detected !== "parts" ? "spelled" : detected);
    this.#namedTokens = namedTokens;
  }

  /**
   * Throws `invalid_argument` with the template's own message if it rejects the conversation, and if it fails or takes
   * too long only with these `templateArguments`. Throws `invalid_checkpoint` if it fails or takes too long without them.
   */
  render(messages: readonly TemplateMessage[], options: RenderOptions): string {
    try {
      return this.#render(messages, options);
    } catch (error) {
      if (error instanceof TemplateRefusal) {
        const reason = `The model's chat template rejects the messages: ${error.message}`;
        throw new EngineError("invalid_argument", reason, { parameter: "prompt.messages", cause: error });
      }
      const isArgument = this.#rendersWithoutArguments(messages, options);
      const input = isArgument ? "templateArguments" : "messages";
      const problem =
        error instanceof CallTimeout
          ? `takes longer than ${MAX_RENDER_MS} ms on these ${input}`
          : `fails on these ${input} (${describeError(error)})`;
      throw new EngineError(isArgument ? "invalid_argument" : "invalid_checkpoint", `${this.#title} ${problem}.`, {
        cause: error,
        ...(isArgument && { parameter: "templateArguments" }),
      });
    }
  }

  /** Whether the request's own variables are the reason for a failure. */
  #rendersWithoutArguments(messages: readonly TemplateMessage[], options: RenderOptions): boolean {
    const { templateArguments = {}, ...others } = options;
    if (Object.keys(templateArguments).length === 0) return false;
    try {
      this.#render(messages, others);
      return true;
    } catch (error) {
      return error instanceof TemplateRefusal;
    }
  }

  #render(messages: readonly TemplateMessage[], options: RenderOptions): string {
    const variables = {
      tools: null,
      documents: null,
      ...options.templateArguments,
      ...this.#namedTokens,
      messages,
      ...(options.tools !== undefined && { tools: options.tools }),
      add_generation_prompt: options.addGenerationPrompt,
      raise_exception: raiseException,
    };
    return callWithin(MAX_RENDER_MS, () => this.#template.render(variables));
  }
}

const chatTemplateJson = z.object({ chat_template: z.string() });
/** Of several templates by name, as in tokenizer_config.json. */
const processorTemplates = z.looseObject({
  chat_template: z.union([z.string(), z.record(z.string(), z.string())]).nullish(),
});

export interface ChatTemplateSettings {
  /** Instead of the checkpoint's template: Jinja text, or the path of a file with it. */
  readonly chatTemplate?: string | null;
  /** Default `auto`: detected in the template. */
  readonly chatTemplateContentFormat?: ChatTemplateContentFormat;
}

/** Of the model's definition. */
interface FamilyPrompts {
  readonly familyTemplate?: string | undefined;
  readonly spellsImages?: boolean | undefined;
}

/**
 * The template of the settings, else of the checkpoint's folder: `chat_template` of processor_config.json, which
 * transformers reads first, else chat_template.jinja (with additional_chat_templates/tool_use.jinja for conversations
 * with tools), else chat_template.json, else `chat_template` of tokenizer_config.json, else the family's. Of several in a
 * configuration, it is the one named "default", and "tool_use" for conversations with tools. Returns null if there is
 * none.
 *
 * @throws EngineError `invalid_checkpoint` or `invalid_configuration`: a template that is not Jinja, a missing file.
 */
export async function loadChatTemplate(
  folder: string,
  namedTokens: Readonly<Record<string, string>>,
  { familyTemplate, spellsImages = false, ...settings }: ChatTemplateSettings & FamilyPrompts = {},
): Promise<ChatTemplate | null> {
  const format = givenFormat(settings.chatTemplateContentFormat);
  const ofContent = { spellsImages, ...(format && { contentFormat: format }) };
  if (settings.chatTemplate != null) {
    const source = await readGivenTemplate(settings.chatTemplate);
    return aboutSetting(() => new ChatTemplate(source, namedTokens, { ...ofContent, owner: "settings" }));
  }
  const found = await tryReadTemplate(folder);
  if (found === null) {
    return familyTemplate === undefined ? null : new ChatTemplate(familyTemplate, namedTokens, ofContent);
  }
  const { fileName, source, toolSource } = found;
  const options = { fileName, ...ofContent };
  const forTools = toolSource === null ? null : new ChatTemplate(toolSource, namedTokens, options);
  return new ChatTemplate(source, namedTokens, { ...options, forTools });
}

/** vLLM's names for the formats. */
function givenFormat(name: ChatTemplateContentFormat = "auto"): ContentFormat | undefined {
  if (name === "auto") return undefined;
  return name === "openai" ? "parts" : "string";
}

/** Every template that writes a message has one of these, and a path hardly ever does. */
const jinjaTag = /\{[{%#]/;

async function readGivenTemplate(given: string): Promise<string> {
  if (jinjaTag.test(given)) return given;
  const bytes = await readRegularFile(given);
  if (bytes !== null) return bytes.toString("utf8");
  throw new EngineError(
    "invalid_configuration",
    `The chat template of the settings is neither an existing file nor a Jinja template: ${excerpt(given)}.`,
    { setting: "chatTemplate" },
  );
}

function aboutSetting<Result>(run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    throw new EngineError("invalid_configuration", error.message, { cause: error, setting: "chatTemplate" });
  }
}

interface FoundTemplate {
  readonly fileName: string;
  readonly source: string;
  readonly toolSource: string | null;
}

async function tryReadTemplate(folder: string): Promise<FoundTemplate | null> {
  const processorFile = "processor_config.json";
  const processor = await tryReadCheckpointFile(folder, processorFile);
  const ofProcessor = processor === null ? null : parseCheckpointJson(processorFile, processor, processorTemplates);
  const named = chooseTemplates(processorFile, ofProcessor?.chat_template ?? {});
  if (named !== null) return named;
  const jinja = await tryReadCheckpointFile(folder, templateFileName);
  if (jinja !== null) {
    const toolSource = await tryReadCheckpointFile(folder, toolTemplateFileName);
    return { fileName: templateFileName, source: jinja, toolSource };
  }
  const json = await tryReadCheckpointFile(folder, "chat_template.json");
  if (json !== null) {
    const fileName = "chat_template.json";
    return { fileName, source: parseCheckpointJson(fileName, json, chatTemplateJson).chat_template, toolSource: null };
  }
  const fileName = "tokenizer_config.json";
  const templates = parseTokenizerConfig((await tryReadCheckpointFile(folder, fileName)) ?? "{}").chat_template ?? {};
  return chooseTemplates(fileName, templates);
}

/** Null if none of several is named "default". */
function chooseTemplates(fileName: string, templates: string | Readonly<Record<string, string>>): FoundTemplate | null {
  if (typeof templates === "string") return { fileName, source: templates, toolSource: null };
  const { default: source, tool_use: toolSource = null } = templates;
  return source === undefined ? null : { fileName, source, toolSource };
}
