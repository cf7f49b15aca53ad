/** Scores of documents for queries, by a reranker or by embeddings: fields, requests and answers of `/score` and `/rerank`. */
import { setImmediate } from "node:timers/promises";

import { createSamplingParams } from "../../../engine/index.ts";
import type { ChatMessage, GenerationRequest, Prompt } from "../../../engine/index.ts";
import { HttpError } from "../../http/errors.ts";
import type { RequestPaths } from "../../http/wire-parameter.ts";
import type { AnswerHead } from "../answer-options.ts";
import { contentField, toContentPart } from "../content-parts.ts";
import { documentPagesOf } from "../document-pages.ts";
import type { GenerationKind } from "../generation-kind.ts";
import type { Generation } from "../generations.ts";
import { cacheOwner, processorOptions } from "../request-options.ts";
import type { RequestDefaults } from "../request-options.ts";
import { rerankRequest, scoreRequest, scoreSides } from "../schemas/score-request.ts";
import type { RerankRequest, ScoredItem, ScoreRequest, ScoreSides } from "../schemas/score-request.ts";
import { unservedInScores } from "../schemas/unserved-fields.ts";
import { toUsage } from "../usage.ts";
import { cosine, maxSimilarity, unitRows } from "../vectors.ts";
import { imageProcessorOptions, videoSamplingOf } from "../video-sampling.ts";

type PairFields = Pick<ScoreRequest, Extract<keyof ScoreRequest, keyof RerankRequest>>;
type PairKind<Fields extends PairFields> = GenerationKind<Fields>;

/** Whether the body is one of `/score`. */
export function hasScoreSides(body: object): boolean {
  return sidesIn(body) !== undefined;
}

/** Of the names that the body has; without any, the newest. */
export function scoreKindOf(body: object): PairKind<ScoreRequest> {
  return scoreKinds.get(sidesIn(body) ?? scoreSides[0])!;
}

function sidesIn(body: object): ScoreSides | undefined {
  return scoreSides.find(([first, second]) => first in body && second in body);
}

const scoreKinds: ReadonlyMap<ScoreSides, PairKind<ScoreRequest>> = new Map(
  scoreSides.map((sides) => [sides, createScoreKind(sides)]),
);

function createScoreKind(sides: ScoreSides): PairKind<ScoreRequest> {
  return {
    ...pairKind(sides),
    idPrefix: "score-",
    schema: scoreRequest(sides),
    async toAnswer(head, generations, fields) {
      const { scores, usage } = await collectScores(generations, fields);
      const data = scores.map((score, index) => ({ index, object: "score", score }));
      return { ...head, object: "list", data, usage };
    },
  };
}

export const rerankKind: PairKind<RerankRequest> = {
  ...pairKind(["query", "documents"]),
  idPrefix: "rerank-",
  schema: rerankRequest,
  async toAnswer({ id, model }: AnswerHead, generations, fields) {
    const { scores, usage } = await collectScores(generations, fields);
    const { documents, top_n: topN, return_documents: returnsDocuments } = fields;
    const results = scores.map((score, index) => ({
      index,
      document: toWireDocument(documents[index]!),
      relevance_score: score,
    }));
    results.sort((left, right) => right.relevance_score - left.relevance_score);
    const best = results.slice(0, topN || results.length);
    const shown =
      returnsDocuments === false ? best.map(({ index, relevance_score }) => ({ index, relevance_score })) : best;
    // Clients of Cohere's API require `meta`.
    return { id, model, usage, results: shown, meta: { tokens: { input_tokens: usage.prompt_tokens } } };
  },
};

/** What the kinds have in common. */
function pairKind(names: readonly [query: string, document: string]) {
  return {
    unservedFields: unservedInScores,
    runsInTurns: true,
    toRequests,
    paths: (fields: PairFields): RequestPaths => pathsOf(fields, names),
    toChunks(): never {
      throw new HttpError(400, "invalid_value", "stream is not supported for scores; leave it out.", {
        parameter: "stream",
      });
    },
  } satisfies Partial<PairKind<PairFields>>;
}

/** Nothing is sampled. */
const samplingParams = createSamplingParams({ maxTokens: 1 });

/** A prompt for each pair; or, for a model that computes embeddings, one for each query, then for each document. */
function toRequests(requestId: string, fields: PairFields, defaults: RequestDefaults): readonly GenerationRequest[] {
  const task = defaults.task === "embed" || defaults.task === "token_embed" ? defaults.task : "score";
  const prompts = task === "score" ? promptsOfPairs(fields) : promptsOfItems(fields);
  const options = {
    ...processorOptions({
      mm_processor_kwargs: fields.mm_processor_kwargs && imageProcessorOptions(fields.mm_processor_kwargs),
    }),
    ...videoSamplingOf({ ...fields, messages: messagesOf(fields) }, defaults),
    ...documentPagesOf(fields),
    ...cacheOwner(fields, defaults.tenant),
    priority: defaults.priority,
    samplingParams,
    task,
  } as const;
  return prompts.map((prompt, index) => Object.assign({ requestId: `${requestId}-${index}`, prompt }, options));
}

/** All items as messages: their videos may say how they are sampled. */
function messagesOf({ queries, documents }: PairFields): Parameters<typeof videoSamplingOf>[0]["messages"] {
  return [...queries, ...documents].map(({ content }) => ({ role: "user", content }));
}

function promptsOfPairs(fields: PairFields): readonly Prompt[] {
  const { queries, documents, chat_template_kwargs: given } = fields;
  const instruction = instructionOf(fields);
  // Templates read it in one of these places.
  const templateArguments = { ...(instruction !== null && { instruction }), ...given };
  return documents.map((document, index) => ({
    kind: "chat",
    messages: [
      ...systemMessages(instruction),
      { role: "query", content: toContent(queries.length === 1 ? queries[0]! : queries[index]!) },
      { role: "document", content: toContent(document) },
    ],
    addGenerationPrompt: true,
    templateArguments,
  }));
}

/**
 * Texts alone are embedded as they are, like those of `/v1/embeddings`. With pictures or an instruction, all are messages,
 * because embeddings of different forms cannot be compared.
 */
function promptsOfItems(fields: PairFields): readonly Prompt[] {
  const { queries, documents, chat_template_kwargs: given } = fields;
  const instruction = instructionOf(fields);
  const all = [...queries, ...documents];
  const isPlain = instruction === null && all.every(({ content }) => typeof content === "string");
  return all.map((item, index): Prompt => {
    const content = toContent(item);
    if (isPlain && typeof content === "string") return { kind: "text", text: content, addSpecialTokens: true };
    const messages = [
      ...systemMessages(index < queries.length ? instruction : null),
      { role: "user", content } as const,
    ];
    return { kind: "chat", messages, addGenerationPrompt: false, templateArguments: given ?? {} };
  });
}

function instructionOf({ instruction, instruct }: PairFields): string | null {
  return instruction || instruct || null;
}

function systemMessages(instruction: string | null): readonly ChatMessage[] {
  return instruction === null ? [] : [{ role: "system", content: instruction }];
}

function toContent({ content }: ScoredItem): ChatMessage["content"] {
  return typeof content === "string" ? content : content.map(toContentPart);
}

/**
 * A prompt has the pictures of its query, then those of its document. Of several documents, errors name only the list,
 * because they do not say which prompt they are about.
 */
function pathsOf(
  { queries, documents }: PairFields,
  [queryName, documentName]: readonly [string, string],
): RequestPaths {
  const isSingle = queries.length === 1 && documents.length === 1;
  const placed = [
    ...queries.flatMap((item) => partPaths(item, queryName, isSingle)),
    ...documents.flatMap((item) => partPaths(item, documentName, isSingle)),
  ];
  const pathsOfType = (...types: readonly string[]): string[] =>
    placed.flatMap(({ type, path }) => (types.includes(type) ? [path] : []));
  return {
    prompt: documentName,
    images: pathsOfType("image", "image_embeds"),
    videos: pathsOfType("video"),
    documents: pathsOfType("document"),
    structuredOutput: "response_format",
  };
}

function partPaths(
  { content }: ScoredItem,
  name: string,
  isExact: boolean,
): { readonly type: string; readonly path: string }[] {
  if (typeof content === "string") return [];
  return content.map((part, index) => ({
    type: toContentPart(part).type,
    path: isExact ? `${name}.content[${index}].${contentField(part)}` : name,
  }));
}

type Output = Generation["output"];

/** A pair is scored as soon as both sides are there, so that few embeddings of tokens are in memory. */
async function collectScores(generations: AsyncIterable<Generation>, fields: PairFields) {
  const { queries, documents } = fields;
  const activates = fields.use_activation ?? fields.activation ?? true;
  const outputs: Output[] = [];
  const scores: number[] = [];
  const scorePair = (index: number): void => {
    const queryIndex = queries.length === 1 ? 0 : index;
    const documentIndex = queries.length + index;
    const query = outputs[queryIndex];
    const document = outputs[documentIndex];
    if (query === undefined || document === undefined) return;
    scores[index] = similarity(query, document);
    outputs[documentIndex] = withoutVectors(document);
    if (queries.length > 1) outputs[queryIndex] = withoutVectors(query);
  };
  for await (const { index, output } of generations) {
    outputs[index] = output;
    if (output.score !== undefined) scores[index] = activates ? sigmoid(output.score) : output.score;
    else if (index >= queries.length) scorePair(index - queries.length);
    else if (queries.length > 1) scorePair(index);
    else for (const documentIndex of documents.keys()) scorePair(documentIndex);
    // Pages have thousands of tokens: other requests go on between the pairs.
    if (output.tokenEmbeddings !== undefined) await setImmediate();
  }
  return { scores, usage: toUsage(outputs) };
}

function withoutVectors({ embedding: _embedding, tokenEmbeddings: _tokens, ...output }: Output): Output {
  return output;
}

/** Of embeddings of two prompts, or of their tokens. */
function similarity(query: Output, document: Output): number {
  if (query.tokenEmbeddings !== undefined && document.tokenEmbeddings !== undefined) {
    return maxSimilarity(
      unitRows(query.tokenEmbeddings, query.numPromptTokens),
      unitRows(document.tokenEmbeddings, document.numPromptTokens),
    );
  }
  if (query.embedding !== undefined && document.embedding !== undefined) {
    return cosine(query.embedding, document.embedding);
  }
  throw new Error("An output has neither a score nor an embedding.");
}

function sigmoid(logit: number): number {
  return 1 / (1 + Math.exp(-logit));
}

/** As in vLLM for texts and for its own form of pictures; other objects as they were sent. */
function toWireDocument({ given }: ScoredItem): object {
  if (typeof given !== "object" || given === null) return { text: given };
  return "content" in given ? { multi_modal: given.content } : given;
}
