/** Renders a conversation with a checkpoint's chat template. Only this file imports @huggingface/jinja. */
import { Template } from "@huggingface/jinja";
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";
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

  /** `namedTokens`: `bos_token` and so on. Throws `invalid_checkpoint` for a template that is not Jinja. */
  constructor(source: string, namedTokens: Readonly<Record<string, string>>) {
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
    this.contentFormat = detectContentFormat(this.#template.parsed);
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

/**
 * Reads the template of a checkpoint folder: chat_template.jinja, else chat_template.json, else `chat_template` of
 * tokenizer_config.json (of several, the one named "default"). Returns null if there is none.
 */
export async function loadChatTemplate(
  folder: string,
  namedTokens: Readonly<Record<string, string>>,
): Promise<ChatTemplate | null> {
  const source = await tryReadTemplate(folder);
  return source === null ? null : new ChatTemplate(source, namedTokens);
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
