/** Embeddings of texts and of conversations: fields, requests and answer, for HTTP and batch lines. */
import { createSamplingParams } from "../../../engine/index.ts";
import type { GenerationRequest } from "../../../engine/index.ts";
import { HttpError } from "../../http/errors.ts";
import type { AnswerHead } from "../answer-options.ts";
import { completionFormOf } from "../completion-form.ts";
import type { CommonFields, GenerationKind } from "../generation-kind.ts";
import type { Generation } from "../generations.ts";
import { cacheOwner, processorOptions, truncation, type RequestDefaults } from "../request-options.ts";
import { chatEmbeddingRequest, embeddingRequest } from "../schemas/embedding-request.ts";
import type { ChatEmbeddingRequest, EmbeddingRequest } from "../schemas/embedding-request.ts";
import { unservedInEmbeddings } from "../schemas/unserved-fields.ts";
import { chatRequestPaths, toChatRequest } from "../to-chat-request.ts";
import { toUsage } from "../usage.ts";

type VectorFields = Pick<EmbeddingRequest, "encoding_format" | "dimensions" | "normalize" | "use_activation">;

/** The kind of a body: one with `messages` is a conversation, as in vLLM. */
export function isConversation(body: object): boolean {
  return completionFormOf(body) === "chat";
}

export const embeddingKind = kindOf<EmbeddingRequest>({
  schema: embeddingRequest,
  toRequests: (requestId, fields, { tenant, priority }) =>
    fields.input.map((input, index) => ({
      requestId: `${requestId}-${index}`,
      prompt:
        typeof input === "string"
          ? { kind: "text", text: input, addSpecialTokens: fields.add_special_tokens ?? true }
          : { kind: "tokens", tokenIds: input },
      ...truncation(fields),
      ...processorOptions(fields),
      ...cacheOwner(fields, tenant),
      priority,
      samplingParams,
    })),
  paths: () => ({ prompt: "input", images: [], videos: [], documents: [], structuredOutput: "response_format" }),
});

export const chatEmbeddingKind = kindOf<ChatEmbeddingRequest>({
  schema: chatEmbeddingRequest,
  toRequests: (requestId, fields, defaults) => [
    // As in vLLM, the turn of the assistant is not begun.
    toChatRequest(requestId, { ...fields, add_generation_prompt: fields.add_generation_prompt ?? false }, defaults),
  ],
  paths: chatRequestPaths,
});

/** Nothing is sampled. */
const samplingParams = createSamplingParams({ maxTokens: 1 });

function kindOf<Fields extends CommonFields & VectorFields>({
  schema,
  toRequests,
  paths,
}: Pick<GenerationKind<Fields>, "schema" | "toRequests" | "paths">): GenerationKind<Fields> {
  return {
    idPrefix: "embd-",
    schema,
    unservedFields: unservedInEmbeddings,
    runsInTurns: true,
    toRequests(requestId, fields, defaults) {
      checkDimensions(fields, defaults);
      return toRequests(requestId, fields, defaults).map(asEmbedding);
    },
    paths,
    toAnswer,
    toChunks() {
      throw new HttpError(400, "invalid_value", "stream is not supported for embeddings; leave it out.", {
        parameter: "stream",
      });
    },
  };
}

function asEmbedding(request: GenerationRequest): GenerationRequest {
  return { ...request, samplingParams, task: "embed" };
}

function checkDimensions({ dimensions }: VectorFields, { embeddingSize }: RequestDefaults): void {
  if (typeof dimensions !== "number" || embeddingSize === null || dimensions <= embeddingSize) return;
  throw new HttpError(
    400,
    "invalid_value",
    `dimensions is ${dimensions}; the embeddings of this model have ${embeddingSize} numbers.`,
    { parameter: "dimensions" },
  );
}

async function toAnswer(
  head: AnswerHead,
  generations: AsyncIterable<Generation>,
  fields: VectorFields,
): Promise<object> {
  const outputs: Generation["output"][] = [];
  for await (const { index, output } of generations) outputs[index] = output;
  return {
    ...head,
    object: "list",
    data: outputs.map(({ embedding }, index) => {
      if (embedding === undefined) throw new Error("An output has no embedding.");
      return { object: "embedding", index, embedding: toWireVector(embedding, fields) };
    }),
    usage: toUsage(outputs),
  };
}

function toWireVector(embedding: Float32Array, fields: VectorFields): readonly number[] | string {
  const { dimensions, encoding_format: format, normalize, use_activation: activates } = fields;
  const vector = embedding.slice(0, dimensions ?? embedding.length);
  if (normalize ?? activates ?? true) scaleToLengthOne(vector);
  // Little-endian, like every processor that the service runs on.
  if (format === "base64") return Buffer.from(vector.buffer).toString("base64");
  return [...vector];
}

/** A vector of zeros stays as it is. */
function scaleToLengthOne(vector: Float32Array): void {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  if (length === 0) return;
  for (let index = 0; index < vector.length; index++) vector[index]! /= length;
}
