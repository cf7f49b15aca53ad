import { expect, test } from "vitest";

import { toChatMessages } from "../../../functions/ai-sdk/chat-messages.ts";

test("an answer is one string, also without text beside its calls", () => {
  const call = { type: "tool-call", toolCallId: "1", toolName: "look", input: {} } as const;
  const texts = [
    { type: "text", text: "Let " },
    { type: "text", text: "me look." },
  ] as const;
  const toolCalls = [{ id: "1", name: "look", arguments: {} }];
  expect(
    toChatMessages([
      { role: "assistant", content: [...texts, call] },
      { role: "assistant", content: [call] },
      { role: "user", content: [...texts] },
    ]),
  ).toEqual([
    { role: "assistant", content: "Let me look.", toolCalls },
    { role: "assistant", content: "", toolCalls },
    { role: "user", content: texts },
  ]);
});
