/** The tables of limits in the documentation have the values of the code. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

import { extraArgumentLimits } from "../../engine/contract/extra-arguments.ts";
import { MAX_NGRAM_SIZE } from "../../engine/contract/no-repeat-ngram.ts";
import { repetitionLimits } from "../../engine/contract/repetition-detection.ts";
import { samplingLimits } from "../../engine/contract/sampling-params.ts";
import { speculativeLimits } from "../../engine/contract/speculative-config.ts";
import { MAX_REDIRECTS } from "../../engine/images/https-image-source.ts";
import { MAX_LITERAL_PLACEHOLDERS } from "../../engine/input/prompt-parts.ts";
import { MAX_CUSTOM_ID_LENGTH } from "../../functions/batch/batch-line.ts";
import { MAX_UNFINISHED } from "../../functions/batch/batches.ts";
import { MAX_NUM_FILES } from "../../functions/batch/store-quota.ts";
import { MAX_MESSAGES, MAX_PARTS } from "../../functions/generation/schemas/chat-completion-request.ts";
import { MAX_PROMPTS } from "../../functions/generation/schemas/completion-request.ts";
import { MIN_ROOM_BYTES, MAX_NUM_BODIES, NUM_LONGEST_BODIES } from "../../functions/http/body-intake.ts";
import {
  MAX_JSON_CONTAINERS,
  MAX_JSON_DEPTH,
  MAX_JSON_KEYS,
  MAX_JSON_VALUES,
} from "../../functions/http/bounded-json.ts";
import { MIN_BYTES_PER_SECOND, RATE_GRACE_MS } from "../../functions/http/received-body.ts";
import { defaultTimeouts, MAX_PIPELINED_REQUESTS } from "../../functions/http/server.ts";
import { loadConfig } from "../../functions/settings/config.ts";
import { GIBIBYTE, MEBIBYTE } from "../../functions/settings/values.ts";

const config = loadConfig({});
const { engine, batches } = config;

/** From 10,000, groups of three digits. */
function shown(count: number): string {
  return count < 10_000 ? String(count) : count.toLocaleString("en-US");
}

function list(...counts: readonly number[]): string {
  return counts.map(shown).join(", ");
}

const seconds = (milliseconds: number): string => `${milliseconds / 1000} s`;
const mebibytes = (bytes: number): string => `${bytes / MEBIBYTE} MiB`;
const { stop, stopTokenIds, badWords, logitBias, allowedTokenIds, logprobs } = samplingLimits;

const operationRows: readonly (readonly [limit: string, value: string])[] = [
  [`mean rate of a body, after ${seconds(RATE_GRACE_MS)}`, `${MIN_BYTES_PER_SECOND} bytes/s`],
  [
    "time for the headers, for the whole request",
    `${seconds(defaultTimeouts.headers)}, ${seconds(defaultTimeouts.request)}`,
  ],
  ["requests of one connection that wait for their answers", shown(MAX_PIPELINED_REQUESTS)],
  [
    "bodies arriving at the same time",
    `${MAX_NUM_BODIES}, and ${NUM_LONGEST_BODIES} x \`MAX_BODY_BYTES\` in memory (at least ${mebibytes(MIN_ROOM_BYTES)}, otherwise at most half of Node's largest heap)`,
  ],
  ["nesting depth of a body", shown(MAX_JSON_DEPTH)],
  ["lists and objects, names, values in a body", list(MAX_JSON_CONTAINERS, MAX_JSON_KEYS, MAX_JSON_VALUES)],
  ["`stop`, `stop_token_ids`, `bad_words`", `${list(stop, stopTokenIds, badWords)} entries`],
  ["`logit_bias`, `allowed_token_ids`", `${list(logitBias, allowedTokenIds)} entries`],
  ["`repetition_detection`: pattern sizes, count", list(repetitionLimits.patternSize, repetitionLimits.count)],
  ["`ngram_size`, `no_repeat_ngram_size`", shown(MAX_NGRAM_SIZE)],
  ["image placeholders of the model that messages spell as text", shown(MAX_LITERAL_PLACEHOLDERS)],
  ["`prompt_lookup_num_tokens`", shown(speculativeLimits.numSpeculativeTokens)],
  ["messages, parts of a message", MAX_MESSAGES === MAX_PARTS ? `${MAX_PARTS} each` : list(MAX_MESSAGES, MAX_PARTS)],
  [
    "`vllm_xargs`",
    `${extraArgumentLimits.arguments} arguments; strings of ${shown(extraArgumentLimits.textCharacters)} characters, ` +
      `lists of ${shown(extraArgumentLimits.listEntries)} entries`,
  ],
];

const securityRows: readonly (readonly [limit: string, value: string])[] = [
  ["body of a request", mebibytes(config.maxBodyBytes)],
  ["requests in progress", shown(engine.maxNumSequences + engine.maxNumWaiting)],
  ["alternatives for each token", shown(logprobs)],
  ["images of a prompt", shown(engine.imageLimits.maxImagesPerPrompt)],
  ["encoded image", mebibytes(engine.imageLimits.maxImageBytes)],
  ["pixels of an image", shown(engine.imageLimits.maxImagePixels)],
  [`time to fetch an image, with up to ${MAX_REDIRECTS} redirects`, seconds(engine.imageLimits.fetchTimeoutMs)],
  ["videos of a prompt", shown(engine.videoLimits.maxVideosPerPrompt)],
  ["encoded video", mebibytes(engine.videoLimits.maxVideoBytes)],
  ["frames of a video that the model sees", shown(engine.videoLimits.maxVideoFrames)],
  [
    "time to fetch a video, time to decode it",
    `${seconds(engine.videoLimits.fetchTimeoutMs)}, ${seconds(engine.videoLimits.videoDecodeTimeoutMs)}`,
  ],
  ["memory for what is remembered of images", `${engine.caches.maxMemoryBytes / GIBIBYTE} GiB`],
  ["wait for Redis", `${engine.caches.commandTimeoutMs} ms`],
  ["file for batches", mebibytes(batches.maxFileBytes)],
  ["all files together", `${batches.maxStoreBytes / GIBIBYTE} GiB`],
  ["number of all files", shown(MAX_NUM_FILES)],
  ["requests of a batch", shown(batches.maxNumLines)],
  ["unfinished batches", shown(MAX_UNFINISHED)],
  ["prompts of a completion", shown(MAX_PROMPTS)],
  ["`stop`, `stop_token_ids`, `bad_words`, `logit_bias` entries", list(stop, stopTokenIds, badWords, logitBias)],
  ["levels, lists and objects, names of a body", list(MAX_JSON_DEPTH, MAX_JSON_CONTAINERS, MAX_JSON_KEYS)],
  ["wait for the next byte of a body", seconds(config.bodyIdleTimeoutMs)],
  ["bodies arriving at once (`fovea_http_bodies_in_flight`)", shown(MAX_NUM_BODIES)],
  ["one step of the engine", seconds(engine.stepTimeoutMs)],
  ["time for a whole request to arrive", seconds(defaultTimeouts.request)],
  ["requests of one connection that wait for their answers", shown(MAX_PIPELINED_REQUESTS)],
  ["time in which a client reads nothing of its answer", seconds(defaultTimeouts.stall)],
];

describe.for([
  { page: "docs/operation.md", rows: operationRows },
  { page: "SECURITY.md", rows: securityRows },
])("$page", ({ page, rows }) => {
  const text = readPage(page);
  const table = new Map([...text.matchAll(/^\| (.+?) \| (.+?) \|/gm)].map(([, limit, value]) => [limit, value]));

  test.for(rows)("gives the limit of %s as %s", ([limit, value]) => {
    expect(table.get(limit)).toBe(value);
  });
});

test("docs/batch.md gives the longest custom_id", () => {
  expect(readPage("docs/batch.md")).toContain(`A string of up to ${MAX_CUSTOM_ID_LENGTH} characters`);
});

function readPage(page: string): string {
  return readFileSync(fileURLToPath(new URL(`../../${page}`, import.meta.url)), "utf8");
}
