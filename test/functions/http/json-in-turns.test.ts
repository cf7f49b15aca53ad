import { jsonValue, assert, asyncProperty, dictionary, string } from "fast-check";
import { expect, test } from "vitest";

import { jsonInTurns } from "../../../functions/http/json-in-turns.ts";
import { countTurns } from "../../support/count-turns.ts";

test("the text is that of JSON.stringify", async () => {
  const property = asyncProperty(dictionary(string(), jsonValue()), async (value) => {
    expect(await jsonInTurns(value)).toBe(JSON.stringify(value));
  });
  await assert(property);
  const odd = {
    left: undefined,
    list: [undefined, null, "é\u2028"],
    deep: [[[[[{ a: [1] }]]]]],
    none: {},
    empty: [],
    at: new Date(0),
  };
  expect(await jsonInTurns(odd)).toBe(JSON.stringify(odd));
});

test("a long list is written in several turns of the event loop", async () => {
  const rows = Array.from({ length: 2000 }, (_, index) => ({ [index]: { logprob: -index, decoded_token: "a" } }));
  const answer = { choices: [{ index: 0, logprobs: { content: rows } }] };
  let text = "";
  const numTurns = await countTurns(async () => (text = await jsonInTurns(answer)));
  expect(text).toBe(JSON.stringify(answer));
  expect(numTurns).toBeGreaterThanOrEqual(7);
});
