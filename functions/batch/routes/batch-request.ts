/** Wire schema of POST /v1/batches. */
import { z } from "zod";

import { addIssue } from "../../generation/schemas/wire-types.ts";
import { batchUrls } from "../batch-line.ts";
import { expiresAfter } from "./expires-after.ts";

const MAX_METADATA_PAIRS = 16;
const MAX_METADATA_KEY_LENGTH = 64;
const MAX_METADATA_VALUE_LENGTH = 512;

const metadata = z
  .record(z.string(), z.string("must be a string"), "must be an object")
  .superRefine((pairs, context) => {
    const numPairs = Object.keys(pairs).length;
    if (numPairs > MAX_METADATA_PAIRS) {
      context.addIssue({ code: "custom", message: `can have at most ${MAX_METADATA_PAIRS} pairs, not ${numPairs}` });
    }
    for (const [key, value] of Object.entries(pairs)) {
      if (key.length > MAX_METADATA_KEY_LENGTH) {
        context.addIssue({
          code: "custom",
          message: `has a key of ${key.length} characters; the limit is ${MAX_METADATA_KEY_LENGTH}`,
        });
      }
      if (value.length > MAX_METADATA_VALUE_LENGTH) {
        addIssue(context, key, `has ${value.length} characters; the limit is ${MAX_METADATA_VALUE_LENGTH}`);
      }
    }
  });

export const batchRequest = z.object({
  input_file_id: z.string("must be the id of a file"),
  endpoint: z.enum(batchUrls, `must be one of ${batchUrls.join(", ")}`),
  completion_window: z.literal("24h", "must be 24h"),
  metadata: metadata.nullish(),
  output_expires_after: expiresAfter(z.number()).nullish(),
});
