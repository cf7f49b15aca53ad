/** Embeddings of texts and of conversations, and of their tokens: fields, requests and answers, for HTTP and batch lines. */
import { createSamplingParams } from "../../../engine/index.ts";
import type { GenerationRequest, TaskName } from "../../../engine/index.ts";
import { HttpError } from "../../http/errors.ts";
import { completionFormOf } from "../completion-form.ts";
import type { CommonFields, GenerationKind } from "../generation-kind.ts";
import type { Generation } from "../generations.ts";
import { cacheOwner, processorOptions, truncation, type RequestDefaults } from "../request-options.ts";
import { chatEmbeddingRequest, embeddingRequest } from "../schemas/embedding-request.ts";
import type { ChatEmbeddingRequest, EmbeddingRequest } from "../schemas/embedding-request.ts";
import { unservedInEmbeddings } from "../schemas/unserved-fields.ts";
import { chatRequestPaths, toChatRequest } from "../to-chat-request.ts";
import { toUsage } from "../usage.ts";
import { scaledToLengthOne } from "../vectors.ts";

type VectorFields = Pick<EmbeddingRequest, "encoding_format" | "dimensions" | "normalize" | "use_activation">;

/** The kind of a body: one with `messages` is a conversation, as in vLLM. */
export function isConversation(body: object): boolean {
  return completionFormOf(body) === "chat";
}

const ofTexts: Inputs<EmbeddingRequest> = {
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
};

const ofConversations: Inputs<ChatEmbeddingRequest> = {
  schema: chatEmbeddingRequest,
  toRequests: (requestId, fields, defaults) => [
    // As in vLLM, the turn of the assistant is not begun.
    toChatRequest(requestId, { ...fields, add_generation_prompt: fields.add_generation_prompt ?? false }, defaults),
  ],
  paths: chatRequestPaths,
};

export const embeddingKind = createEmbeddingKind(ofTexts);
export const chatEmbeddingKind = createEmbeddingKind(ofConversations);
export const poolingKind = createPoolingKind(ofTexts);
export const chatPoolingKind = createPoolingKind(ofConversations);

/** Nothing is sampled. */
const samplingParams = createSamplingParams({ maxTokens: 1 });

type Inputs<Fields extends CommonFields> = Pick<GenerationKind<Fields>, "schema" | "toRequests" | "paths">;

/** Of `/v1/embeddings`: one embedding of each prompt. */
function createEmbeddingKind<Fields extends CommonFields & VectorFields>(
  inputs: Inputs<Fields>,
): GenerationKind<Fields> {
  return {
    ...createKind(inputs, () => "embed"),
    idPrefix: "embd-",
    async toAnswer(head, generations, fields) {
      const outputs = await collect(generations);
      const data = outputs.map((output, index) => ({
        object: "embedding",
        index,
        embedding: toWire(vectorsOf(output, fields), fields),
      }));
      return { ...head, object: "list", data, usage: toUsage(outputs) };
    },
  };
}

/** Of vLLM's `/pooling`: what the model computes of each prompt, its embedding or those of its tokens. */
function createPoolingKind<Fields extends CommonFields & VectorFields>(inputs: Inputs<Fields>): GenerationKind<Fields> {
  return {
    ...createKind(inputs, ({ task }) => (task === "token_embed" ? task : "embed")),
    idPrefix: "pool-",
    async toAnswer(head, generations, fields) {
      const outputs = await collect(generations);
      const data = outputs.map((output, index) => {
        const vectors = vectorsOf(output, fields);
        const isNested = output.tokenEmbeddings !== undefined && fields.encoding_format !== "base64";
        const shown = isNested ? vectors.map((vector) => [...vector]) : toWire(vectors, fields);
        return { index, object: "pooling", data: shown };
      });
      return { ...head, object: "list", data, usage: toUsage(outputs) };
    },
  };
}

/** What the kinds have in common. */
function createKind<Fields extends CommonFields & VectorFields>(
  { schema, toRequests, paths }: Inputs<Fields>,
  taskOf: (defaults: RequestDefaults) => TaskName,
) {
  return {
    schema,
    unservedFields: unservedInEmbeddings,
    runsInTurns: true,
    toRequests(requestId: string, fields: Fields, defaults: RequestDefaults) {
      checkDimensions(fields, defaults);
      const task = taskOf(defaults);
      return toRequests(requestId, fields, defaults).map((request) => asTask(request, task));
    },
    paths,
    toChunks(): never {
      throw new HttpError(400, "invalid_value", "stream is not supported for embeddings; leave it out.", {
        parameter: "stream",
      });
    },
  };
}

function asTask(request: GenerationRequest, task: TaskName): GenerationRequest {
  return { ...request, samplingParams, task };
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

/** As text, so many numbers are about half of the longest string. */
const MAX_NUMBERS = 2 ** 24;

async function collect(generations: AsyncIterable<Generation>): Promise<readonly Generation["output"][]> {
  const outputs: Generation["output"][] = [];
  let numNumbers = 0;
  for await (const { index, output } of generations) {
    outputs[index] = output;
    numNumbers += valuesOf(output).length;
    if (numNumbers <= MAX_NUMBERS) continue;
    const message = `The embeddings have more than ${MAX_NUMBERS} numbers together; send fewer or shorter inputs.`;
    throw new HttpError(400, "invalid_value", message, { parameter: "input" });
  }
  return outputs;
}

function valuesOf({ embedding, tokenEmbeddings = embedding }: Generation["output"]): Float32Array {
  if (tokenEmbeddings === undefined) throw new Error("An output has no embedding.");
  return tokenEmbeddings;
}

/** One of the prompt, or one of each token. */
function vectorsOf(
  output: Generation["output"],
  { dimensions, normalize, use_activation: activates }: VectorFields,
): readonly Float32Array[] {
  const values = valuesOf(output);
  const size = output.tokenEmbeddings === undefined ? values.length : values.length / output.numPromptTokens;
  return Array.from({ length: values.length / size }, (_, index) => {
    const vector = values.slice(index * size, index * size + (dimensions ?? size));
    return (normalize ?? activates ?? true) ? scaledToLengthOne(vector) : vector;
  });
}

/** All vectors one after the other. Little-endian in base64, like every processor that the service runs on. */
function toWire(
  vectors: readonly Float32Array[],
  { encoding_format: format }: VectorFields,
): readonly number[] | string {
  if (format === "base64") return Buffer.concat(vectors.map((vector) => Buffer.from(vector.buffer))).toString("base64");
  return vectors.flatMap((vector) => [...vector]);
}
