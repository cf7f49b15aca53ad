import { expect, test } from "vitest";

import type { PromptText } from "../../../engine/multimodal/prompt-text.ts";
import {
  promptIndexTargets,
  resolvePromptUpdate,
  selectTokenIds,
  targetAt,
} from "../../../engine/multimodal/prompt-update.ts";

/** A token is a character. */
const promptText: PromptText = {
  decode: (tokenIds) => String.fromCodePoint(...tokenIds),
  encode: async (text) => Array.from(text, (character) => character.codePointAt(0) as number),
};

test("targets are text, tokens or places; contents become tokens", async () => {
  const text = { mode: "replacement", target: "<i>", content: "ab" } as const;
  expect(await resolvePromptUpdate(text, 0, promptText)).toEqual({
    mode: "replacement",
    target: { kind: "text", text: "<i>" },
    content: { full: [97, 98], isEmbed: null },
  });
  const tokens = { mode: "insertion", target: [3, 4], content: [5] } as const;
  expect(await resolvePromptUpdate(tokens, 0, promptText)).toEqual({
    mode: "insertion",
    target: { kind: "tokens", tokenIds: [3, 4] },
    content: { full: [5], isEmbed: null },
  });
  for (const target of [promptIndexTargets.start(), promptIndexTargets.end(), promptIndexTargets.prefix("a")]) {
    const resolved = await resolvePromptUpdate({ mode: "insertion", target, content: [1] }, 0, promptText);
    expect(resolved.target).toEqual(target);
  }
  expect(promptIndexTargets.prefix("a")).toEqual({ kind: "prefix", sequence: { kind: "text", text: "a" } });
});

test("contents may depend on the item, and targets on its place in a prompt", async () => {
  const update = {
    mode: "replacement",
    target: (item: number) => `<i${item}>`,
    content: (item: number) => [7, item],
  } as const;
  expect(await resolvePromptUpdate(update, 3, promptText)).toEqual({
    mode: "replacement",
    target: null,
    content: { full: [7, 3], isEmbed: null },
  });
  expect(targetAt(update, 3)).toEqual({ kind: "text", text: "<i3>" });
  expect(targetAt({ ...update, target: "<i>" }, 3)).toBeNull();
});

test.for([
  ["a mask by tokens", { full: [1, 1, 2, 9], isEmbed: selectTokenIds(1) }, [true, true, false, false]],
  ["the features among the tokens", { full: [1, 1, 2, 9], features: [1, 1, 2] }, [true, true, true, false]],
  ["features as text", { full: "xxn.", features: "xn" }, [false, true, true, false]],
  ["nothing", { full: [1, 2] }, null],
] as const)("details mark the tokens embedded by %s", async ([, content, isEmbed]) => {
  const resolved = await resolvePromptUpdate({ mode: "replacement", target: [0], content }, 0, promptText);
  expect(resolved.content.isEmbed).toEqual(isEmbed);
});

test("features that are not contiguous in the content, and masks of another length, are a model's bug", async () => {
  const missing = { mode: "replacement", target: [0], content: { full: [1, 2], features: [2, 1] } } as const;
  await expect(resolvePromptUpdate(missing, 0, promptText)).rejects.toMatchObject({
    code: "internal",
    message: expect.stringContaining("the 2 features are not a contiguous part of the content's 2 tokens"),
  });
  const short = { mode: "replacement", target: [0], content: { full: [1, 2], isEmbed: () => [true] } } as const;
  await expect(resolvePromptUpdate(short, 0, promptText)).rejects.toMatchObject({
    message: expect.stringContaining("a mask of 1 for 2 tokens"),
  });
});
