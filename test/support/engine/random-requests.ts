/** Random requests of all kinds that an engine mixes: pictures, adapters, choices, drafts, forms, penalties, limits. */
import * as fc from "fast-check";

import type { SamplingParamsInput } from "../../../engine/contract/sampling-params.ts";
import { promptLookupArgument } from "../../../engine/contract/speculative-config.ts";
import { createSamplingParams } from "../../../engine/index.ts";
import type { ChatMessage, GenerationRequest } from "../../../engine/index.ts";

export interface RandomRequest {
  readonly request: GenerationRequest;
  /** The same request without drafts. */
  readonly plain: GenerationRequest;
  /** Outputs after which its client leaves; null if it stays. */
  readonly leavesAfter: number | null;
}

export interface RandomRequestOptions {
  readonly numRequests: number;
  readonly seed: number;
  /** References. */
  readonly pictures: readonly string[];
  /** Names. */
  readonly adapters: readonly string[];
  /** Of the model; requests change some. */
  readonly defaults: SamplingParamsInput;
}

const words = "the quick brown fox jumps over a lazy dog and then more words follow".split(" ");
/** Requests that begin with the same one share computed tokens. */
const beginnings = [words.slice(0, 9), words, [...words, ...words]].map((each) => each.join(" "));

const sentence = (maxLength: number): fc.Arbitrary<string> =>
  fc.array(fc.constantFrom(...words), { minLength: 1, maxLength }).map((each) => each.join(" "));

const forms = fc.constantFrom<SamplingParamsInput["structuredOutput"]>(
  { kind: "json-schema", schema: '{"type":"array","items":{"enum":["x","yy","zzz"]},"minItems":1,"maxItems":6}' },
  { kind: "json-schema", schema: '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}' },
  { kind: "regex", pattern: "[a-z ]{5,20}!" },
  { kind: "choice", choices: ["yes", "no", "maybe so"] },
);

/** `value` in one of `every` requests, and undefined in the others. */
function seldom<Value>(every: number, value: fc.Arbitrary<Value>): fc.Arbitrary<Value | undefined> {
  return fc.oneof({ weight: every - 1, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: value });
}

const floats = (min: number, max: number): fc.Arbitrary<number> => fc.double({ min, max, noNaN: true });

const greedyParams = { temperature: fc.constant(0), topK: fc.constant(0), topP: fc.constant(1) };
const randomParams = {
  temperature: floats(0.3, 1.5),
  topK: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 20 })),
  topP: fc.oneof(fc.constant(1), floats(0.5, 1)),
  minP: seldom(5, floats(0, 0.1)),
};
const commonParams = {
  seed: fc.nat(1000),
  maxTokens: fc.integer({ min: 1, max: 30 }),
  logprobs: fc.constant(3),
  ignoreEos: fc.boolean(),
  repetitionPenalty: seldom(5, floats(0.8, 1.8)),
  presencePenalty: seldom(5, floats(-1, 1)),
  frequencyPenalty: seldom(5, floats(-1, 1)),
  promptLogprobs: seldom(10, fc.nat(2)),
  stop: seldom(5, fc.constantFrom(["a"], ["th", "q"])),
  badWords: seldom(
    10,
    fc.constantFrom(...words).map((word) => [word]),
  ),
  structuredOutput: seldom(4, forms),
};

function paramsOf(isGreedy: boolean): fc.Arbitrary<SamplingParamsInput> {
  return isGreedy ? fc.record({ ...commonParams, ...greedyParams }) : fc.record({ ...commonParams, ...randomParams });
}

function conversation(pictures: readonly string[]): fc.Arbitrary<readonly ChatMessage[]> {
  const picture = fc.constantFrom(...pictures).map((reference) => ({ type: "image", reference }) as const);
  const text = fc.tuple(fc.constantFrom("", ...beginnings), sentence(12)).map(([first, rest]) => `${first} ${rest}`);
  const shown = pictures.length === 0 ? fc.constant([]) : fc.array(picture, { maxLength: 2 });
  return fc
    .record({ text, shown, isFirst: fc.boolean(), earlier: seldom(4, fc.tuple(sentence(6), sentence(4))) })
    .map(({ text: asked, shown: images, isFirst, earlier }): ChatMessage[] => {
      const written = { type: "text", text: asked } as const;
      const content = isFirst ? [...images, written] : [written, ...images];
      const messages: ChatMessage[] = [{ role: "user", content }];
      if (earlier !== undefined) {
        messages.push({ role: "assistant", content: earlier[0] }, { role: "user", content: earlier[1] });
      }
      return messages;
    });
}

/** The same for the same options. */
export function randomRequests(options: RandomRequestOptions): RandomRequest[] {
  const { numRequests, seed, pictures, adapters, defaults } = options;
  const arbitrary = fc.boolean().chain((isGreedy) =>
    fc.record({
      messages: conversation(pictures),
      params: paramsOf(isGreedy),
      adapter: fc.constantFrom(undefined, ...adapters),
      numChoices: isGreedy ? fc.constant(undefined) : seldom(4, fc.integer({ min: 2, max: 3 })),
      truncatePromptTokens: seldom(10, fc.integer({ min: 30, max: 80 })),
      cacheSalt: seldom(10, fc.constantFrom("one", "other")),
      priority: fc.integer({ min: -1, max: 1 }),
      drafts: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 6 })),
      leavesAfter: seldom(8, fc.nat(12)),
    }),
  );
  return fc.sample(arbitrary, { numRuns: numRequests, seed }).map((drawn, index) => {
    const { messages, params, drafts, leavesAfter, ...rest } = drawn;
    const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
    const create = (requestId: string, extraArgs: Readonly<Record<string, number>>): GenerationRequest => ({
      requestId,
      prompt: { kind: "chat", messages, addGenerationPrompt: true },
      samplingParams: createSamplingParams({ ...defaults, ...params, extraArgs }),
      ...given,
    });
    return {
      request: create(`${index}`, { [promptLookupArgument]: drafts }),
      plain: create(`${index} alone`, {}),
      leavesAfter: leavesAfter ?? null,
    };
  });
}
