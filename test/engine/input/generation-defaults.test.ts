import { expect, test } from "vitest";

import { readGenerationDefaults } from "../../../engine/input/generation-defaults.ts";

const nothing = { generationConfig: null, modelConfig: {}, tokenizerEosTokenId: null, vocabSize: 100 };

test.for([
  ["generation_config.json", { generationConfig: { eos_token_id: [5, 6] }, modelConfig: { eos_token_id: 7 } }, [5, 6]],
  ["config.json where that is silent", { modelConfig: { eos_token_id: 7 } }, [7]],
  ["the text part of config.json", { modelConfig: { text_config: { eos_token_id: [7, 8] } } }, [7, 8]],
  ["the tokenizer as well", { generationConfig: { eos_token_id: 5 }, tokenizerEosTokenId: 9 }, [5, 9]],
  ["the tokenizer, once", { generationConfig: { eos_token_id: 9 }, tokenizerEosTokenId: 9 }, [9]],
  ["nowhere", {}, []],
] as const)("the end token is named by %s", ([, settings, eosTokenIds]) => {
  expect(readGenerationDefaults({ ...nothing, ...settings }).eosTokenIds).toEqual(eosTokenIds);
});

test("suppressed and end tokens outside the vocabulary are left out", () => {
  const generationConfig = { suppress_tokens: [7, -1, 100, 7, 99], eos_token_id: [100, 5] };
  expect(readGenerationDefaults({ ...nothing, generationConfig, tokenizerEosTokenId: 200 })).toMatchObject({
    suppressedTokenIds: [7, 99],
    eosTokenIds: [5],
  });
});

test.for([-1, [-1]])("an eos_token_id of %j is no end, and comes before that of config.json", (eosTokenId) => {
  const generationConfig = { eos_token_id: eosTokenId };
  expect(
    readGenerationDefaults({ ...nothing, generationConfig, modelConfig: { eos_token_id: 5 } }).eosTokenIds,
  ).toEqual([]);
  expect(readGenerationDefaults({ ...nothing, modelConfig: { eos_token_id: eosTokenId } }).eosTokenIds).toEqual([]);
});

test("suppressed sequences are kept as in transformers, unless a token is outside the vocabulary", () => {
  const generationConfig = {
    eos_token_id: [5],
    bad_words_ids: [[7], [5], [8, 5], [], [9, 100], [-1]],
    begin_suppress_tokens: [220, 50, 5, 50],
  };
  expect(readGenerationDefaults({ ...nothing, generationConfig })).toMatchObject({
    suppressedSequences: [[7], [8, 5]],
    beginSuppressedTokenIds: [50, 5],
  });
});

test("sampling fields that are set become defaults, the others stay open", () => {
  const generationConfig = { temperature: 0.6, top_p: 0.9, top_k: null, max_new_tokens: 20, repetition_penalty: 1.1 };
  expect(readGenerationDefaults({ ...nothing, generationConfig }).samplingParams).toEqual({
    temperature: 0.6,
    topP: 0.9,
    repetitionPenalty: 1.1,
  });
  expect(readGenerationDefaults({ ...nothing, generationConfig: { do_sample: false } }).samplingParams).toEqual({
    temperature: 0,
  });
});

test.for([
  [{ temperature: "hot" }, /generation_config.json.*temperature/],
  [{ top_p: 7 }, /generation_config.json.*topP/],
  [{ eos_token_id: "</s>" }, /generation_config.json.*eos_token_id/],
  [{ suppress_tokens: ["a"] }, /generation_config.json.*suppress_tokens/],
  [{ begin_suppress_tokens: 5 }, /generation_config.json.*begin_suppress_tokens/],
  [{ bad_words_ids: [5] }, /generation_config.json.*bad_words_ids/],
] as const)("a generation_config.json with %j is rejected by name", ([generationConfig, message]) => {
  expect(() => readGenerationDefaults({ ...nothing, generationConfig })).toThrow(
    expect.objectContaining({ code: "invalid_checkpoint", message: expect.stringMatching(message) }),
  );
});
