/** The routes that take JSON, with valid bodies, and valid bodies with something wrong. */
import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import type { z } from "zod";

import { predictionRequest } from "../../../functions/api/platforms/cog.ts";
import { inferRequest } from "../../../functions/api/platforms/open-inference.ts";
import { detokenizeRequest } from "../../../functions/api/routes/detokenize.ts";
import { batchRequest } from "../../../functions/batch/routes/batch-request.ts";
import { countTokensRequest, messagesRequest } from "../../../functions/generation/messages/messages-request.ts";
import { responsesRequest } from "../../../functions/generation/responses/responses-request.ts";
import { chatCompletionRequest } from "../../../functions/generation/schemas/chat-completion-request.ts";
import { completionRequest } from "../../../functions/generation/schemas/completion-request.ts";
import { embeddingRequest } from "../../../functions/generation/schemas/embedding-request.ts";
import { rerankFields, scoreFields } from "../../../functions/generation/schemas/score-request.ts";
import { pdfUrl } from "../../support/requests/pdf-writer.ts";
import { shorten } from "../attack.ts";
import type { Attack } from "../attack.ts";
import { plausible } from "./from-schema.ts";
import type { FieldTexts } from "./from-schema.ts";
import type { Mutation } from "./hostile-json.ts";
import { fromValue, Pairs, showJson, writeJson } from "./json-tree.ts";
import type { Json } from "./json-tree.ts";

/** A route that takes a JSON body. */
export interface BodyRoute {
  readonly target: string;
  /** Arbitrary valid bodies: required fields, and optional ones from the schema. */
  readonly bodies: fc.Arbitrary<Pairs>;
  /** All fields of its schema. */
  readonly fields: readonly string[];
}

const scene = readFileSync(new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url));
export const sceneUrl = `data:image/png;base64,${scene.toString("base64")}`;

const pageUrl = pdfUrl([{ width: 60, height: 40, lines: ["a"] }]);

const texts: FieldTexts = {
  model: ["fovea-shapes", "other"],
  url: [sceneUrl, "https://127.0.0.1/a.png", "data:,"],
  image_url: [sceneUrl],
  image_embeds: ["AAAA", sceneUrl],
  file_data: [pageUrl, "AAAA"],
  file_url: [pageUrl],
  file_id: ["file-1", "file-id:file-1"],
  document_url: [pageUrl],
  regex: ["[a-c]{1,3}", "a|b", "(red|blue) circle"],
  grammar: ['root ::= "a" | "b"', 'root ::= [a-z]+ " " root?'],
  json: ['{"type":"object"}', '{"type":"integer"}'],
  input_file_id: [`file-${"0".repeat(44)}`, "file-1"],
};

/** Few tokens, so that thousands of bodies cost little; a mutation may change it. */
const MAX_TOKENS = 3;

const chatBodies = [
  { messages: [{ role: "user", content: "Hello?" }] },
  {
    messages: [
      { role: "system", content: "Be short." },
      {
        role: "user",
        content: [
          { type: "image_url", image_url: { url: sceneUrl, detail: "auto" }, uuid: "scene" },
          { type: "text", text: "Describe the picture." },
        ],
      },
      { role: "assistant", content: "A circle." },
      { role: "user", content: [{ type: "text", text: "Where?" }] },
    ],
    temperature: 0.7,
    seed: 1,
    logprobs: true,
    top_logprobs: 2,
  },
  {
    messages: [
      {
        role: "user",
        content: [
          { type: "file", file: { filename: "a.pdf", file_data: pageUrl } },
          { type: "document_url", document_url: { url: pageUrl } },
        ],
      },
    ],
    media_io_kwargs: { document: { first_page: 1, last_page: 2, dpi: 72 } },
  },
  {
    messages: [{ role: "user", content: "a" }],
    response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: "object" } } },
    vllm_xargs: { a: 1, b: ["x"] },
    mm_processor_kwargs: {},
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  },
];
const completionBodies = [
  { prompt: "a red" },
  { prompt: ["a", "b"], n: 2, temperature: 1, stop: ["x"], logprobs: 1, echo: true },
  { prompt: [[5, 6], [7]], logit_bias: { 7: 1 }, allowed_token_ids: [7, 8], bad_words: ["a"], stop_token_ids: [9] },
  { prompt: "a", structured_outputs: { choice: ["a", "b"] }, stream: true, min_tokens: 1 },
];
const place = { type: "object", properties: { place: { type: "string" } } };
const responseBodies = [
  { input: "Hello?" },
  {
    instructions: "Be short.",
    input: [
      {
        role: "user",
        content: [
          { type: "input_image", image_url: sceneUrl, detail: "auto" },
          { type: "input_file", filename: "a.pdf", file_data: pageUrl },
          { type: "input_file", file_id: `file-${"0".repeat(44)}` },
          { type: "input_text", text: "Where is the star?" },
        ],
      },
      { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "Hm." }] },
      { type: "function_call", call_id: "1", name: "look", arguments: '{"place":"center"}' },
      { type: "function_call_output", call_id: "1", output: "A star" },
    ],
    tools: [{ type: "function", name: "look", parameters: place }, { type: "web_search" }],
    tool_choice: "auto",
    metadata: { a: "b" },
  },
  { input: "a", text: { format: { type: "json_schema", name: "a", schema: place } }, stream: true },
  { input: "a", include: ["message.output_text.logprobs"], top_logprobs: 2, reasoning: { effort: "low" } },
];
const sceneBlock = {
  type: "image",
  source: { type: "base64", media_type: "image/png", data: scene.toString("base64") },
};
const messageBodies = [
  { messages: [{ role: "user", content: "Hello?" }] },
  {
    system: [{ type: "text", text: "Be short." }],
    messages: [
      { role: "user", content: [sceneBlock, { type: "text", text: "Where is the star?" }] },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Hm.", signature: "" },
          { type: "tool_use", id: "1", name: "look", input: { place: "center" } },
        ],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: [sceneBlock] }] },
    ],
    tools: [{ name: "look", input_schema: place }],
    tool_choice: { type: "auto" },
    thinking: { type: "adaptive" },
  },
  { messages: [{ role: "user", content: "a" }], stop_sequences: ["x"], stream: true },
];
const batchBodies = [
  {
    input_file_id: `file-${"0".repeat(44)}`,
    endpoint: "/v1/completions",
    completion_window: "24h",
    metadata: { a: "b" },
  },
];

const rerankBodies = [{ query: "a circle", documents: ["a", { text: "b" }], top_n: 1 }];
const scoreBodies = [{ text_1: "a circle", text_2: ["a", { content: [{ type: "text", text: "b" }] }] }];

const predictionBodies = chatBodies.map((input) => ({ input }));
const inferBodies = ["shape", "a circle"].map((text) => ({
  inputs: [{ name: "text_input", shape: [1], datatype: "BYTES", data: [text] }],
  parameters: { max_tokens: MAX_TOKENS },
}));

export const bodyRoutes: readonly BodyRoute[] = [
  createRoute("/v1/chat/completions", chatCompletionRequest, chatBodies),
  createRoute("/v1/completions", completionRequest, completionBodies),
  createRoute("/v1/chat/completions/render", chatCompletionRequest, chatBodies),
  createRoute("/v1/completions/render", completionRequest, completionBodies),
  createRoute("/invocations", chatCompletionRequest, chatBodies),
  createRoute("/tokenize", chatCompletionRequest, chatBodies),
  createRoute("/detokenize", detokenizeRequest, [{ tokens: [5, 6, 7] }], null),
  createRoute("/v1/responses", responsesRequest, responseBodies, "max_output_tokens"),
  createRoute("/v1/responses/input_tokens", responsesRequest, responseBodies, null),
  createRoute("/v1/embeddings", embeddingRequest, [{ input: "a circle" }, { input: ["a", "b"], dimensions: 4 }], null),
  createRoute("/pooling", embeddingRequest, [{ input: "a circle" }], null),
  ...["/rerank", "/v1/rerank", "/v2/rerank"].map((path) => createRoute(path, rerankFields, rerankBodies, null)),
  ...["/score", "/v1/score"].map((path) => createRoute(path, scoreFields(["text_1", "text_2"]), scoreBodies, null)),
  createRoute("/v1/messages", messagesRequest, messageBodies),
  createRoute("/v1/messages/count_tokens", countTokensRequest, messageBodies, null),
  createRoute("/v1/batches", batchRequest, batchBodies, null),
  createRoute("/predictions", predictionRequest, predictionBodies, null),
  createRoute("/v2/models/:model{.+}/infer", inferRequest, inferBodies, null),
  createRoute("/v2/models/:model{.+}/versions/:version/infer", inferRequest, inferBodies, null),
];

/** @param tokensField The field that bounds the output; null for a route that generates none. */
function createRoute(
  target: string,
  schema: z.core.$ZodObject,
  examples: readonly object[],
  tokensField: string | null = "max_tokens",
): BodyRoute {
  const fromSchema = plausible(schema, texts).map((json) => (json as Pairs).entries);
  const example = fc.constantFrom(...examples).map((body) => (fromValue(body) as Pairs).entries);
  // The required fields of an example, because generated ones are rarely all valid, before generated fields.
  const mixed = fc.tuple(example, fromSchema).map(([own, made]) => {
    const names = new Set(own.map(([name]) => name));
    return own.concat(made.filter(([name]) => !names.has(name)));
  });
  return {
    target,
    fields: Object.keys(schema._zod.def.shape),
    bodies: fc
      .oneof({ weight: 2, arbitrary: example }, { weight: 3, arbitrary: mixed }, { weight: 2, arbitrary: fromSchema })
      .map((entries) => new Pairs([...(tokensField === null ? [] : [[tokensField, MAX_TOKENS] as const]), ...entries])),
  };
}

/** Posts valid bodies of all routes with something wrong. */
export function bodyAttacks(mutations: fc.Arbitrary<readonly Mutation[]>): fc.Arbitrary<Attack> {
  return fc.oneof(
    ...bodyRoutes.map(({ target, bodies }) =>
      fc.tuple(bodies, mutations).map(([body, changes]) => createBodyAttack(target, body, changes)),
    ),
  );
}

function createBodyAttack(target: string, body: Json, mutations: readonly Mutation[]): Attack {
  const mutated = mutations.reduce((json, { apply }) => apply(json), body);
  return {
    route: `POST ${target}`,
    label: mutations.map(({ name }) => name).join(" and ") || "a right body",
    get shown() {
      return shorten(showJson(mutated), 3000);
    },
    run: async (wire) => [
      await wire.send({
        method: "POST",
        target: target.replace(":model{.+}", "fovea-shapes").replace(":version", "1"),
        headers: { "content-type": "application/json" },
        body: writeJson(mutated),
      }),
    ],
  };
}
