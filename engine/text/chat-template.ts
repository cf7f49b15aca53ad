/** Renders a conversation with a checkpoint's chat template. Only this file imports @huggingface/jinja. */
import { Template } from "@huggingface/jinja";
import { z } from "zod";

import type { ChatTemplateContentFormat } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { describeError, excerpt } from "../excerpt.ts";
import { readRegularFile } from "../weights/regular-file.ts";
import { descendants, detectContentFormat } from "./content-format.ts";
import type { ContentFormat } from "./content-format.ts";
import { parseCheckpointJson, parseTokenizerConfig, tryReadCheckpointFile } from "./tokenizer-json.ts";

type TemplatePart = { readonly type: "text"; readonly text: string } | { readonly type: "image" };

export interface TemplateMessage {
  readonly role: string;
  /** A list of parts if the template's `contentFormat` is "parts", otherwise a string. */
  readonly content: string | readonly TemplatePart[];
}

/** Thrown by a template's `raise_exception`: the model does not accept the conversation. */
class TemplateRefusal extends Error {}

const raiseName = "raise_exception";
const raiseRefusalName = "raise_refusal";

export class ChatTemplate {
  readonly contentFormat: ContentFormat;
  readonly #template: Template;
  readonly #namedTokens: Readonly<Record<string, string>>;

  /**
   * @param namedTokens `bos_token` and so on.
   * @param contentFormat Default: detected in the template.
   * @throws EngineError `invalid_checkpoint` for a template that is not Jinja.
   */
  constructor(source: string, namedTokens: Readonly<Record<string, string>>, contentFormat?: ContentFormat) {
    try {
      this.#template = new Template(source);
    } catch (error) {
      const reason = describeError(error);
      throw new EngineError(
        "invalid_checkpoint",
        `The chat template of the checkpoint is not valid Jinja (${reason}).`,
        {
          cause: error,
        },
      );
    }
    this.contentFormat = contentFormat ?? detectContentFormat(this.#template.parsed);
    this.#namedTokens = namedTokens;
    // The library's own function throws a plain Error; ours distinguishes a rejection from a failing template.
    for (const node of descendants(this.#template.parsed)) {
      if (node.type === "Identifier" && node.value === raiseName) Object.assign(node, { value: raiseRefusalName });
    }
  }

  /** Throws `invalid_argument` with the template's own message if it rejects the conversation. */
  render(messages: readonly TemplateMessage[], options: { readonly addGenerationPrompt: boolean }): string {
    try {
      return this.#template.render({
        ...this.#namedTokens,
        messages,
        add_generation_prompt: options.addGenerationPrompt,
        [raiseRefusalName]: (message: unknown) => {
          throw new TemplateRefusal(String(message));
        },
      });
    } catch (error) {
      if (error instanceof TemplateRefusal) {
        const reason = `The model's chat template rejects the messages: ${error.message}`;
        throw new EngineError("invalid_argument", reason, { parameter: "prompt.messages", cause: error });
      }
      throw new EngineError("invalid_checkpoint", "The chat template of the checkpoint fails on these messages.", {
        cause: error,
      });
    }
  }
}

const chatTemplateJson = z.object({ chat_template: z.string() });

export interface ChatTemplateSettings {
  /** Instead of the checkpoint's template: Jinja text, or the path of a file with it. */
  readonly chatTemplate?: string | null;
  /** Default `auto`: detected in the template. */
  readonly chatTemplateContentFormat?: ChatTemplateContentFormat;
}

/**
 * The template of the settings, else of the checkpoint's folder: chat_template.jinja, else chat_template.json, else
 * `chat_template` of tokenizer_config.json (of several, the one named "default"), else the family's. Returns null if
 * there is none.
 *
 * @throws EngineError `invalid_checkpoint` or `invalid_configuration`: a template that is not Jinja, a missing file.
 */
export async function loadChatTemplate(
  folder: string,
  namedTokens: Readonly<Record<string, string>>,
  { familyTemplate, ...settings }: ChatTemplateSettings & { readonly familyTemplate?: string | undefined } = {},
): Promise<ChatTemplate | null> {
  const contentFormat = givenFormat(settings.chatTemplateContentFormat);
  if (settings.chatTemplate != null) {
    const source = await readGivenTemplate(settings.chatTemplate);
    return aboutSetting(() => new ChatTemplate(source, namedTokens, contentFormat));
  }
  const source = (await tryReadTemplate(folder)) ?? familyTemplate;
  return source === undefined ? null : new ChatTemplate(source, namedTokens, contentFormat);
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
    const message = error.message.replace("of the checkpoint", "of the settings");
    throw new EngineError("invalid_configuration", message, { cause: error, setting: "chatTemplate" });
  }
}

async function tryReadTemplate(folder: string): Promise<string | null> {
  const jinja = await tryReadCheckpointFile(folder, "chat_template.jinja");
  if (jinja !== null) return jinja;
  const json = await tryReadCheckpointFile(folder, "chat_template.json");
  if (json !== null) return parseCheckpointJson("chat_template.json", json, chatTemplateJson).chat_template;
  const config = parseTokenizerConfig((await tryReadCheckpointFile(folder, "tokenizer_config.json")) ?? "{}");
  const templates = config.chat_template;
  if (templates === null || typeof templates === "string") return templates;
  return templates.find(({ name }) => name === "default")?.template ?? null;
}
