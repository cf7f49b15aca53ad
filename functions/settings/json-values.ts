/** Parsers of settings that are JSON, or that may be. */
import { z } from "zod";

import type { LogitsProcessorReference } from "../../engine/contract/config.ts";
import { defaultImageLimits, defaultVideoLimits, defaultVideoLimitsFor } from "../../engine/contract/default-limits.ts";
import { isExtraArguments } from "../../engine/contract/extra-arguments.ts";
import type { ExtraArguments } from "../../engine/contract/extra-arguments.ts";
import {
  defaultPromptLookup,
  speculativeLimits,
  speculativeMethods,
} from "../../engine/contract/speculative-config.ts";
import type { SpeculativeConfig } from "../../engine/contract/speculative-config.ts";
import type { Parser } from "./setting.ts";

const jsonObjectSchema = z.record(z.string(), z.unknown());

/** A JSON object with any fields. */
export function jsonObject(example: string): Parser<Readonly<Record<string, unknown>>> {
  return {
    expected: `a JSON object such as ${example}`,
    parse: (text) => jsonObjectSchema.safeParse(parseJson(text)).data,
  };
}

/** A JSON object of strings, numbers, booleans and lists of those. */
export function extraArguments(): Parser<ExtraArguments> {
  return {
    expected: 'a JSON object such as {"target_token": 67}, of strings, numbers, booleans and lists of those',
    parse(text) {
      const json = parseJson(text);
      return isExtraArguments(json) ? json : undefined;
    },
  };
}

export interface LimitsPerPrompt {
  readonly image: { readonly count: number; readonly width?: number | undefined; readonly height?: number | undefined };
  readonly video: { readonly count: number };
}

/** Far more than a context window holds. */
const MAX_ITEMS_PER_PROMPT = 1000;
const imageCount = defaultImageLimits.maxImagesPerPrompt;
const videoCount = defaultVideoLimits.maxVideosPerPrompt;
const itemCount = z.int().min(0).max(MAX_ITEMS_PER_PROMPT);
const size = z.int().positive().optional();

/** vLLM's other modalities are accepted and ignored: no model here takes them. */
const otherModality = z.unknown().optional();

function limitOf<Item extends z.ZodType>(item: Item) {
  return z.union([itemCount.transform((count) => ({ count })), item]);
}

const limitsPerPrompt = z
  .strictObject({
    audio: otherModality,
    vision_chunk: otherModality,
    image: limitOf(z.strictObject({ count: itemCount.default(imageCount), width: size, height: size })).default({
      count: imageCount,
    }),
    // vLLM plans memory for a video of this size. Here, its frames are pictures, and planned as such.
    video: limitOf(
      z
        .strictObject({ count: itemCount.default(videoCount), num_frames: size, width: size, height: size })
        .transform(({ count }) => ({ count })),
    ).optional(),
  })
  .transform(({ image, video }): LimitsPerPrompt => {
    const { maxVideosPerPrompt } = defaultVideoLimitsFor({ maxImagesPerPrompt: image.count });
    return { image, video: video ?? { count: maxVideosPerPrompt } };
  });

/**
 * vLLM's `{"image": 4, "video": 1}`, `{"image": {"count": 4, "width": 512, "height": 512}}`, or its older spelling
 * `image=4,video=1`: the largest numbers of images and videos per prompt, and the largest image to plan for.
 */
export function limitsOfPrompt(): Parser<LimitsPerPrompt> {
  return {
    expected: `{"image": N, "video": N}, {"image": {"count": N, "width": W, "height": H}} or image=N,video=N, with N from 0 to ${MAX_ITEMS_PER_PROMPT}`,
    parse: (text) => limitsPerPrompt.safeParse(readShortLimits(text) ?? parseJson(text)).data,
  };
}

/** Null for a text in another form. */
function readShortLimits(text: string): Readonly<Record<string, number>> | null {
  const pairs = text.split(",").map((pair) => /^\s*([a-z_]+)\s*=\s*(\d+)\s*$/.exec(pair));
  if (pairs.includes(null)) return null;
  return Object.fromEntries(pairs.map((pair) => [pair![1]!, Number(pair![2])]));
}

export interface VideoOptions {
  /** -1: all. */
  readonly num_frames?: number | undefined;
  readonly fps?: number | undefined;
}

/** vLLM's number for all frames, and for a rate that is left open. */
const UNLIMITED = -1;
const mediaOptions = z.strictObject({
  // There is no other mode: pictures are RGB.
  image: z.strictObject({ image_mode: z.literal("RGB").optional() }).optional(),
  audio: otherModality,
  video: z
    .strictObject({
      num_frames: z.union([z.literal(UNLIMITED), z.int().positive()]).optional(),
      fps: z.union([z.literal(UNLIMITED).transform(() => undefined), z.number().positive()]).optional(),
    })
    .refine(({ num_frames: numFrames = UNLIMITED, fps }) => numFrames === UNLIMITED || fps === undefined)
    .default({}),
});

/** vLLM's `--media-io-kwargs`: the value is the part about videos. */
export function mediaIoOptions(): Parser<VideoOptions> {
  return {
    expected:
      'a JSON object such as {"video": {"num_frames": 16}} or {"video": {"fps": 1}}, with not more than one of the two',
    parse: (text) => mediaOptions.safeParse(parseJson(text)).data?.video,
  };
}

const logitsProcessorList = z.array(
  z.union([
    z.string().transform((className) => ({ className, options: {} })),
    z
      .strictObject({ class: z.string(), options: z.record(z.string(), z.unknown()).default({}) })
      .transform((entry) => ({ className: entry.class, options: entry.options })),
  ]),
);

/**
 * Names separated by commas or white space, or a JSON array of names and of {"class", "options"}. The engine checks that
 * each name leads to a class when it loads them.
 */
export function logitsProcessors(): Parser<readonly LogitsProcessorReference[]> {
  return {
    expected:
      'module:Export names separated by commas or white space, or a JSON array of such names and of {"class": name, "options": {...}}',
    parse(text) {
      const isJson = /^[[{"]/.test(text);
      const list = isJson ? parseJson(text) : text.split(/[\s,]+/).filter((name) => name !== "");
      return logitsProcessorList.safeParse(list).data;
    },
  };
}

const speculativeConfigSchema = z
  .strictObject({
    method: z.enum(speculativeMethods),
    num_speculative_tokens: z.int().min(1).max(speculativeLimits.numSpeculativeTokens),
    prompt_lookup_max: z.int().min(1).max(speculativeLimits.promptLookup).optional(),
    prompt_lookup_min: z.int().min(1).max(speculativeLimits.promptLookup).optional(),
  })
  .transform((fields) => {
    const { prompt_lookup_max: longest, prompt_lookup_min: shortest } = fields;
    const { promptLookupMax, promptLookupMin } = defaultPromptLookup;
    return {
      method: fields.method,
      numSpeculativeTokens: fields.num_speculative_tokens,
      promptLookupMax: longest ?? Math.max(promptLookupMax, shortest ?? 0),
      promptLookupMin: shortest ?? Math.min(promptLookupMin, longest ?? Infinity),
    };
  })
  .refine(({ promptLookupMin, promptLookupMax }) => promptLookupMin <= promptLookupMax);

const classifierTokenList = z.array(z.string().min(1)).min(1).max(2);

/** `classifier_from_token` of vLLM's `--hf-overrides`, or its entries separated by commas. */
export function classifierTokens(): Parser<readonly string[]> {
  return {
    expected: 'one or two tokens separated by a comma, such as no,yes, or a JSON array such as ["no", "yes"]',
    parse(text) {
      const list = text.startsWith("[") ? parseJson(text) : text.split(",").map((token) => token.trim());
      return classifierTokenList.safeParse(list).data;
    },
  };
}

/** vLLM's `--speculative-config`, of its `ngram` method. */
export function speculativeConfig(): Parser<SpeculativeConfig> {
  const { numSpeculativeTokens, promptLookup } = speculativeLimits;
  return {
    expected:
      `a JSON object such as {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, ` +
      `"prompt_lookup_min": 2}, with no other method than ngram, 1 to ${numSpeculativeTokens} tokens, and n-grams of 1 ` +
      `to ${promptLookup} tokens, the minimum at most the maximum`,
    parse: (text) => speculativeConfigSchema.safeParse(parseJson(text)).data,
  };
}

/** Undefined for a text that is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
