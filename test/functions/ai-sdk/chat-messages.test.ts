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

test("files are pictures and videos, also in the results of tools", () => {
  const bytes = new Uint8Array([0, 0, 0]);
  const video = { type: "file", mediaType: "video/mp4", data: { type: "data", data: bytes } } as const;
  const url = new URL("https://example.com/a%20b.webm");
  const linked = { type: "file", mediaType: "video", data: { type: "url", url } } as const;
  const picture = { type: "file", mediaType: "image/png", data: { type: "data", data: "AAAA" } } as const;
  const file = { type: "video", reference: "data:video/mp4;base64,AAAA" };
  expect(
    toChatMessages([
      { role: "user", content: [video, linked, picture] },
      {
        role: "tool",
        content: [
          {
            type: "tool-result",
            toolCallId: "1",
            toolName: "look",
            output: { type: "content", value: [{ type: "text", text: "a" }, video] },
          },
        ],
      },
    ]),
  ).toEqual([
    {
      role: "user",
      content: [
        file,
        { type: "video", reference: "https://example.com/a%20b.webm" },
        { type: "image", reference: "data:image/png;base64,AAAA" },
      ],
    },
    { role: "tool", content: [{ type: "text", text: "a" }, file], toolCallId: "1", name: "look" },
  ]);
});

test("a file of another type is rejected", () => {
  const sound = { type: "file", mediaType: "audio/wav", data: { type: "data", data: "AAAA" } } as const;
  expect(() => toChatMessages([{ role: "user", content: [sound] }])).toThrow("files of the type audio/wav");
});
