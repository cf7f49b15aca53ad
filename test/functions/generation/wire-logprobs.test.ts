import { expect, test } from "vitest";

import { TextOffsets } from "../../../functions/generation/text-offsets.ts";
import { toCompletionLogprobs, tokenEntries, toPromptLogprobs } from "../../../functions/generation/wire-logprobs.ts";
import { countTurns } from "../../support/count-turns.ts";

const NUM_TOKENS = 2000;

const logprobs = Array.from({ length: NUM_TOKENS }, (_, index) => {
  const entry = { tokenId: index, token: `t${index}`, bytes: [...Buffer.from(`t${index}`)], logprob: -index, rank: 1 };
  return { sampled: entry, top: [entry, { ...entry, tokenId: index + 1, token: "other", logprob: -0.5 }] };
});
const entries = tokenEntries(logprobs);

test.for<[string, () => Promise<unknown>]>([
  ["prompt_logprobs", () => toPromptLogprobs(logprobs)],
  ["logprobs of an echoed prompt", () => toCompletionLogprobs(entries, new TextOffsets(), false)],
])("%s of a long prompt are formed in several turns of the event loop", async ([, form]) => {
  expect(await countTurns(form)).toBeGreaterThanOrEqual(7);
});

test("the fields of an echoed prompt have an entry for each token", async () => {
  const offsets = new TextOffsets();
  offsets.next([...Buffer.from("before ")]);
  const formed = await toCompletionLogprobs(entries.slice(0, 3), offsets, false);
  expect(formed).toEqual({
    tokens: ["t0", "t1", "t2"],
    token_logprobs: [-0, -1, -2],
    top_logprobs: [
      { other: -0.5, t0: -0 },
      { t1: -1, other: -0.5 },
      { t2: -2, other: -0.5 },
    ],
    text_offset: [7, 9, 11],
  });
});
