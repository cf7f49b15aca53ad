import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { withCombinedTurns, withOneSystemMessage } from "../../../functions/generation/conversation-turns.ts";
import type { ChatMessageFields } from "../../../functions/generation/schemas/chat-completion-request.ts";

type Part = Exclude<NonNullable<ChatMessageFields["content"]>, string>[number];

const system = (content: string): ChatMessageFields => ({ role: "system", content });
const developer = (content: string): ChatMessageFields => ({ role: "developer", content });
const user = (content: string | Part[]): ChatMessageFields => ({ role: "user", content });
const answer = (content: string): ChatMessageFields => ({ role: "assistant", content });
const calls = [{ id: "1", function: { name: "f" } }];
const calling: ChatMessageFields = { role: "assistant", tool_calls: calls };
const result = (content: string): ChatMessageFields => ({ role: "tool", content });
const text = (content: string): Part => ({ type: "text", text: content });
const picture: Part = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };

describe("system messages", () => {
  test.for<[name: string, given: ChatMessageFields[], expected: ChatMessageFields[]]>([
    ["none", [user("a"), answer("b")], [user("a"), answer("b")]],
    ["several at the start", [developer("a"), system("b"), user("c")], [system("a\n\nb"), user("c")]],
    ["an empty one at the start", [system(""), developer("b"), user("c")], [system("b"), user("c")]],
    ["after the user", [system("a"), user("b"), system("c"), answer("d")], [system("a"), user("b\n\nc"), answer("d")]],
    ["at the end", [user("a"), system("b"), system("c")], [user("a\n\nb\n\nc")]],
    ["before the user's next turn", [answer("a"), system("b"), user("c")], [answer("a"), user("b\n\nc")]],
    ["between answers", [answer("a"), system("b"), answer("c")], [answer("a"), user("b"), answer("c")]],
    ["after an answer, at the end", [user("a"), answer("b"), system("c")], [user("a"), answer("b"), user("c")]],
    [
      "between a call and its results",
      [calling, system("a"), result("b"), result("c"), answer("d")],
      [calling, result("b"), result("c\n\na"), answer("d")],
    ],
    [
      "after a picture",
      [user([text("a"), picture]), system("b"), answer("c")],
      [user([text("a"), picture, text("b")]), answer("c")],
    ],
    [
      "after parts that end with a text",
      [user([picture, text("a")]), system("b"), answer("c")],
      [user([picture, text("a\n\nb")]), answer("c")],
    ],
  ])("%s", ([, given, expected]) => {
    expect(withOneSystemMessage(given)).toEqual(expected);
  });

  test("leave the turns before an answer as they were when the answer was generated", () => {
    const message = fc.constantFrom(system("s"), user("u"), answer("a"), calling, result("r"));
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 12 }), (messages) => {
        const whole = withOneSystemMessage([...messages, answer("last")]);
        const before = withOneSystemMessage(messages);
        expect(whole.slice(0, before.length)).toEqual(before);
        expect(before.filter(({ role }) => role === "system").length).toBeLessThanOrEqual(1);
      }),
    );
  });
});

test.for<[name: string, given: ChatMessageFields[], expected: ChatMessageFields[]]>([
  ["of the user", [user("a"), user("b"), user([picture])], [user([text("a\n\nb"), picture])]],
  ["of the assistant", [user("a"), answer("b"), answer("c")], [user("a"), answer("b\n\nc")]],
  [
    "of the assistant, with thinking",
    [
      { role: "assistant", reasoning_content: "a" },
      { role: "assistant", reasoning_content: "b", content: "c" },
      calling,
    ],
    [{ role: "assistant", reasoning_content: "a\nb", content: "c", tool_calls: calls }],
  ],
  ["after a call", [calling, answer("a")], [calling, answer("a")]],
  ["with a result between them", [result("a"), result("b"), user("c")], [result("a"), result("b"), user("c")]],
])("adjacent turns %s become one unless the first has a call", ([, given, expected]) => {
  expect(withCombinedTurns(given)).toEqual(expected);
});
