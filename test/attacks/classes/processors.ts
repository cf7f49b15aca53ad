import { readFileSync } from "node:fs";
import * as fc from "fast-check";

import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { sceneUrl } from "../generators/bodies.ts";
import { hostileValue, trickyNames } from "../generators/hostile-json.ts";
import { fromValue, Pairs, showJson, writeJson } from "../generators/json-tree.ts";
import type { Json } from "../generators/json-tree.ts";
import { prepareForBodies } from "../surroundings.ts";

const modelFolder = new URL("../../../models/fovea-shapes/", import.meta.url);
/** The options of the checkpoint's image processor: those that a request may change, and all others. */
const imageOptions = JSON.parse(readFileSync(new URL("preprocessor_config.json", modelFolder), "utf8")) as object;

const processorArguments = fc
  .array(
    fc.tuple(
      fc.oneof(fc.constant("target_token"), fc.constantFrom(...trickyNames)),
      fc.oneof(fc.constantFrom<Json>(7, 597, 598, -1, 1.5, 1e308, "7", true, [7], []), hostileValue),
    ),
    { minLength: 1, maxLength: 4 },
  )
  .map((entries) => ["vllm_xargs", new Pairs(entries)] as const);

const extremes = fc
  .constantFrom(0, -1, 1, 1e-300, 5e-324, 1e300, 1e308, -1e308, 3, 64, 1e9, 0.5)
  .map((value): Json => value);
const list = fc.array(extremes, { maxLength: 4 });
const size = fc
  .array(
    fc.tuple(
      fc.constantFrom("height", "width", "shortest_edge", "longest_edge", ...trickyNames),
      fc.oneof(extremes, hostileValue),
    ),
    { maxLength: 3 },
  )
  .map((entries) => new Pairs(entries));

const processorOptions = fc
  .array(
    fc.tuple(
      fc.constantFrom(...Object.keys(imageOptions), "do_pad", "min_pixels", "max_pixels", "patch_size", ...trickyNames),
      fc.oneof(extremes, list, size, fc.boolean(), hostileValue),
    ),
    { minLength: 1, maxLength: 3 },
  )
  .map((entries) => ["mm_processor_kwargs", new Pairs(entries)] as const);

const prompt = fromValue([
  {
    role: "user",
    content: [
      { type: "image_url", image_url: { url: sceneUrl } },
      { type: "text", text: "What is it?" },
    ],
  },
]);

/** Arguments for logits processors and for the image processor, with unexpected types and sizes. */
export const processors: AttackClass = {
  name: "processors",
  title: "Arguments for logits processors and for the image processor",
  numCases: 160,
  routes: ["POST /v1/chat/completions"],
  prepare: prepareForBodies,
  attacks: () =>
    fc.oneof(processorArguments, processorOptions).map(([field, value]): Attack => {
      const body = new Pairs([
        ["messages", prompt],
        ["max_tokens", 2],
        [field, value],
      ]);
      return {
        route: "POST /v1/chat/completions",
        label: `${field}: ${shorten(showJson(value), 120)}`,
        shown: shorten(showJson(value), 2000),
        async run(wire) {
          const answer = await wire.send({
            method: "POST",
            target: "/v1/chat/completions",
            headers: { "content-type": "application/json" },
            body: writeJson(body),
          });
          const unknown = value.entries.find(([name]) => (trickyNames as readonly string[]).includes(name));
          if (field === "mm_processor_kwargs" && unknown && answer.status < 400) {
            throw new Error(`The image processor has no option ${JSON.stringify(unknown[0])}, and takes it.`);
          }
          return [answer];
        },
      };
    }),
  // One of the examples throws for a token outside the vocabulary, which is a failure of the operator's code.
  allowedErrorCodes: ["logits_processor_failed"],
};
