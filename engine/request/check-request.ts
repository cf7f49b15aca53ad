/** The shape of requests, for callers in JavaScript, which no compiler checks. */
import { taskNames } from "../contract/config.ts";
import type { RunnerName, TaskName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { ChatMessage, ContentPart, GenerationRequest, ImagePart, Prompt } from "../contract/generation-request.ts";
import { isComplete } from "../contract/sampling-params.ts";
import type { ToolCall, ToolDefinition } from "../contract/tools.ts";
import { shown } from "../excerpt.ts";

type Fields<Type> = Readonly<Partial<Record<keyof Type, unknown>>>;
type FieldsOfAll<Type> = Readonly<Partial<Record<Type extends unknown ? keyof Type : never, unknown>>>;

/**
 * Checks what would fail deep inside the engine. Reads no text and no token, so that a long prompt costs nothing; others
 * check these, and the values of options.
 *
 * @throws EngineError `invalid_argument`.
 */
export function checkPromptRequest(request: unknown): void {
  if (!isObject(request)) {
    throw new EngineError("invalid_argument", `The request is ${shown(request)}; expected an object.`);
  }
  const { prompt, mmProcessorOptions, videoSampling, defaultVideoSampling, documentPages, priority, onStage } =
    request as Fields<GenerationRequest>;
  checkPrompt(prompt);
  const optional = { mmProcessorOptions, videoSampling, defaultVideoSampling, documentPages };
  for (const [name, value] of Object.entries(optional)) {
    if (value !== undefined && !isObject(value)) throw refusal(name, value, "an object");
  }
  if (priority !== undefined && (typeof priority !== "number" || Number.isNaN(priority))) {
    throw refusal("priority", priority, "a number");
  }
  if (onStage !== undefined && typeof onStage !== "function") throw refusal("onStage", onStage, "a function");
}

/** Like `checkPromptRequest`, with the fields of generation. */
export function checkGenerationRequest(request: unknown): void {
  checkPromptRequest(request);
  const { requestId, samplingParams } = request as Fields<GenerationRequest>;
  if (typeof requestId !== "string") throw refusal("requestId", requestId, "a text");
  if (!isObject(samplingParams) || !isComplete(samplingParams)) {
    throw refusal("samplingParams", samplingParams, "the result of createSamplingParams");
  }
}

/** @throws EngineError `invalid_argument` if the model does something else than the request asks for. */
export function checkTask({ task = "generate" }: Pick<GenerationRequest, "task">, served: TaskName): void {
  if (task === served) return;
  if (!taskNames.includes(task)) throw refusal("task", task, `"${taskNames.join('", "')}"`);
  const message = `This model ${abilities[served]} and ${inabilities[task]}: the runner is ${runners[served]}.`;
  throw new EngineError("invalid_argument", message, { setting: "runner" });
}

const abilities: Readonly<Record<TaskName, string>> = {
  generate: "generates text",
  embed: "computes embeddings",
  token_embed: "computes embeddings of tokens",
  score: "scores pairs of a query and a document",
};
const inabilities: Readonly<Record<TaskName, string>> = {
  generate: "generates no text",
  embed: "computes no embeddings",
  token_embed: "computes no embeddings of tokens",
  score: "scores no pairs",
};
const runners: Readonly<Record<TaskName, RunnerName>> = {
  generate: "generate",
  embed: "pooling",
  token_embed: "pooling",
  score: "pooling",
};

function checkPrompt(prompt: unknown): void {
  if (!isObject(prompt)) throw refusal("prompt", prompt, "an object");
  const fields = prompt as FieldsOfAll<Prompt>;
  switch (fields.kind) {
    case "chat":
      checkList("prompt.messages", fields.messages, checkMessage);
      if (fields.tools !== undefined) checkList("prompt.tools", fields.tools, checkTool);
      return;
    case "parts":
      checkList("prompt.parts", fields.parts, checkPart);
      return;
    case "text":
      if (typeof fields.text !== "string") throw refusal("prompt.text", fields.text, "a text");
      checkImages(fields.images);
      return;
    case "tokens":
      if (!Array.isArray(fields.tokenIds) && !ArrayBuffer.isView(fields.tokenIds)) {
        throw refusal("prompt.tokenIds", fields.tokenIds, "a list of token ids");
      }
      checkImages(fields.images);
      return;
    default:
      throw refusal("prompt.kind", fields.kind, '"chat", "text", "parts" or "tokens"');
  }
}

function checkMessage(path: string, message: unknown): void {
  if (!isObject(message)) throw refusal(path, message, "an object");
  const { role, content, toolCalls } = message as Fields<ChatMessage>;
  if (typeof role !== "string") throw refusal(`${path}.role`, role, "a text");
  if (typeof content !== "string") checkList(`${path}.content`, content, checkPart, "a text or a list of parts");
  if (toolCalls !== undefined) checkList(`${path}.toolCalls`, toolCalls, checkToolCall);
}

/** Their form is not that of OpenAI's clients, which have a `function` around it. */
function checkTool(path: string, tool: unknown): void {
  if (!isObject(tool)) throw refusal(path, tool, "an object");
  const { name, parameters } = tool as Fields<ToolDefinition>;
  if (typeof name !== "string") throw refusal(`${path}.name`, name, "a text");
  if (parameters === undefined || parameters === null || isObject(parameters)) return;
  throw refusal(`${path}.parameters`, parameters, "a JSON Schema as an object, or null");
}

function checkToolCall(path: string, call: unknown): void {
  if (!isObject(call)) throw refusal(path, call, "an object");
  const { name, arguments: given } = call as Fields<ToolCall>;
  if (typeof name !== "string") throw refusal(`${path}.name`, name, "a text");
  if (!isObject(given)) throw refusal(`${path}.arguments`, given, "an object");
}

function checkImages(images: unknown): void {
  if (images === undefined || images === null) return;
  checkList("prompt.images", images, (path, image) => {
    if (!isObject(image)) throw refusal(path, image, "an object");
    const { type } = image as Fields<ImagePart>;
    if (type !== "image" && type !== "image_embeds") throw refusal(`${path}.type`, type, '"image" or "image_embeds"');
    checkPart(path, image);
  });
}

function checkPart(path: string, part: unknown): void {
  if (!isObject(part)) throw refusal(path, part, "an object");
  const { type, text, reference, uuid, grid } = part as FieldsOfAll<ContentPart>;
  if (uuid !== undefined && typeof uuid !== "string") throw refusal(`${path}.uuid`, uuid, "a text");
  switch (type) {
    case "text":
      if (typeof text !== "string") throw refusal(`${path}.text`, text, "a text");
      return;
    case "image":
      if (reference === null || typeof reference === "string") return;
      throw refusal(`${path}.reference`, reference, "a text, or null for an image that is cached under its uuid");
    case "image_embeds":
      if (typeof reference !== "string") throw refusal(`${path}.reference`, reference, "a text");
      if (grid !== undefined) checkGrid(`${path}.grid`, grid);
      return;
    case "document":
      if (typeof reference !== "string") throw refusal(`${path}.reference`, reference, "a text");
      return;
    case "video":
      if (reference === null || typeof reference === "string" || isListOfTexts(reference)) return;
      throw refusal(`${path}.reference`, reference, "a text, a list of texts, or null for a video that is cached");
    default:
      throw refusal(`${path}.type`, type, '"text", "image", "image_embeds", "video" or "document"');
  }
}

function checkGrid(path: string, grid: unknown): void {
  const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) > 0;
  if (Array.isArray(grid) && grid.length === 3 && grid.every(isCount)) return;
  throw refusal(path, grid, "three positive integers: times, rows and columns");
}

function checkList(
  path: string,
  list: unknown,
  checkElement: (path: string, element: unknown) => void,
  expected = "a list",
): void {
  if (!Array.isArray(list)) throw refusal(path, list, expected);
  for (const [index, element] of list.entries()) checkElement(`${path}[${index}]`, element);
}

function isListOfTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((element) => typeof element === "string");
}

/** Without lists and Maps, whose entries are no fields. */
function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(Symbol.iterator in value);
}

function refusal(parameter: string, value: unknown, expected: string): EngineError {
  return new EngineError("invalid_argument", `${parameter} is ${shown(value)}; expected ${expected}.`, { parameter });
}
