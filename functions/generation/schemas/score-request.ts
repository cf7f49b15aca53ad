/**
 * Wire schemas of scores: those of vLLM's `/score`, under each of its names for the two sides, and of `/rerank`, which is
 * also Jina's and Cohere's.
 */
import { z } from "zod";

import { contentPart, MAX_PARTS } from "./chat-completion-request.ts";
import { reasoningFields } from "./reasoning-fields.ts";
import { samplingFields } from "./sampling-fields.ts";
import { addIssue, boundedList, count, flag, text } from "./wire-types.ts";

/** As many as inputs of embeddings. */
const MAX_ITEMS = 2048;

const itemRule =
  'must be a string, {"content": [parts]} with the parts of a message, or an object with text, image or both';
const itemsRule = "must be a list of strings and objects";

/** A query or document: the value of the body, and its content as that of a message. */
const item = z.preprocess(
  (given) => {
    const content = contentOf(given);
    return typeof content === "string" || Array.isArray(content) ? { given, content } : null;
  },
  z.object(
    {
      given: z.unknown(),
      content: z.union([text, boundedList(contentPart, MAX_PARTS, itemRule).min(1, itemRule)], itemRule),
    },
    itemRule,
  ),
);
const items = z.preprocess(
  (given) => (typeof given === "string" || isObject(given) ? [given] : given),
  boundedList(item, MAX_ITEMS, itemsRule).min(1, "must have at least one entry"),
);

export type ScoredItem = z.output<typeof item>;

/** Jina's objects have a text or an image, whose value is an address, a data URL or base64. */
function contentOf(given: unknown): unknown {
  if (!isObject(given)) return typeof given === "string" ? given : null;
  if ("content" in given) return given.content;
  if ("type" in given || Object.keys(given).some((key) => key.endsWith("_url"))) return [given];
  const { text: words, image } = given as { readonly text?: unknown; readonly image?: unknown };
  if (image === undefined || image === null) return words;
  const picture = { type: "image_url", image_url: image };
  return words === undefined || words === null ? [picture] : [picture, { type: "text", text: words }];
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const commonFields = {
  model: samplingFields.model,
  cache_salt: samplingFields.cache_salt,
  request_id: samplingFields.request_id,
  priority: samplingFields.priority,
  mm_processor_kwargs: samplingFields.mm_processor_kwargs,
  media_io_kwargs: samplingFields.media_io_kwargs,
  chat_template_kwargs: reasoningFields.chat_template_kwargs,
  /** What makes a document relevant; SGLang's `instruct`. */
  instruction: text.nullish(),
  instruct: text.nullish(),
  use_activation: flag.nullish(),
  /** vLLM's older name of `use_activation`. */
  activation: flag.nullish(),
};

/** vLLM's names for the two sides of `/score`. */
export const scoreSides = [
  ["queries", "documents"],
  ["queries", "items"],
  ["data_1", "data_2"],
  ["text_1", "text_2"],
] as const;
export type ScoreSides = (typeof scoreSides)[number];

interface BothSides {
  readonly queries: readonly ScoredItem[];
  readonly documents: readonly ScoredItem[];
}

export function scoreFields([first, second]: ScoreSides) {
  return z.object({ ...commonFields, [first]: items, [second]: items });
}

export function scoreRequest(sides: ScoreSides) {
  const [first, second] = sides;
  return scoreFields(sides)
    .superRefine((fields, context) => {
      const [queries, documents] = sidesOf(fields, first, second);
      if (queries.length === 1 || queries.length === documents.length) return;
      const expected = `must have as many entries as ${first}, ${queries.length}, or ${first} only one`;
      addIssue(context, second, `${expected}; got ${documents.length}`);
    })
    .transform((fields) => {
      const [queries, documents] = sidesOf(fields, first, second);
      return { ...fields, queries, documents } satisfies BothSides;
    });
}

function sidesOf(fields: object, first: string, second: string): [readonly ScoredItem[], readonly ScoredItem[]] {
  const sides = fields as Readonly<Record<string, readonly ScoredItem[]>>;
  return [sides[first]!, sides[second]!];
}

export const rerankFields = z.object({
  ...commonFields,
  query: item,
  documents: items,
  /** 0: all. */
  top_n: count.nullish(),
  return_documents: flag.nullish(),
});

export const rerankRequest = rerankFields.transform(
  ({ query, ...fields }) => ({ ...fields, queries: [query] }) satisfies BothSides,
);

export type ScoreRequest = z.output<ReturnType<typeof scoreRequest>>;
export type RerankRequest = z.output<typeof rerankRequest>;
