/** The file of exported conversations: its form, and how broken and hostile files are refused. */
import { describe, expect, test } from "vitest";

import { FileError, parseFile, toFile, toFileConversation } from "../../../functions/playground/conversation-file.js";
import { joinPictures, splitPictures } from "../../../functions/playground/inline-pictures.js";

/** As text-generation-webui finds pictures in its history. */
const documentForm = /<img src="data:image\/jpeg;base64,([A-Za-z0-9+/=]+)">/g;
const jpeg = Buffer.from([0xff, 0xd8, 0xff, 0xe0, 1, 2, 3]).toString("base64");
const png = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0]).toString("base64");

describe("pictures in a text", () => {
  test("have the form that text-generation-webui searches for", () => {
    const text = joinPictures([jpeg, jpeg], "What are these?");
    expect([...text.matchAll(documentForm)].map(([, base64]) => base64)).toEqual([jpeg, jpeg]);
    expect(splitPictures(text)).toEqual({
      text: "What are these?",
      pictures: [
        { type: "jpeg", base64: jpeg },
        { type: "jpeg", base64: jpeg },
      ],
    });
  });

  test("are found between texts, as PNG too", () => {
    const text = `one<img src="data:image/png;base64,${png}">two<img src="data:image/jpeg;base64,${jpeg}">three`;
    expect(splitPictures(text)).toMatchObject({ text: "onetwothree", pictures: [{ type: "png" }, { type: "jpeg" }] });
  });

  test.for([
    `<img src="https://example.com/a.jpg">`,
    `<img src="data:text/html;base64,PGI+">`,
    `<img src='data:image/jpeg;base64,${jpeg}'>`,
    `<img src="data:image/jpeg;base64,${jpeg}" onload="alert(1)">`,
    `<img src="data:image/jpeg;base64,${jpeg}`,
    `<script>alert(1)</script>`,
  ])("%s is text", (text) => {
    expect(splitPictures(text)).toEqual({ text, pictures: [] });
  });

  test("of ten megabytes are read", () => {
    const large = `${jpeg.slice(0, 8)}${"A".repeat(13_333_336)}`;
    expect(splitPictures(joinPictures([large], "?")).pictures).toEqual([{ type: "jpeg", base64: large }]);
  });
});

const turn = { user: joinPictures([jpeg], "What is this?"), assistant: "A dot.", after: null, shown: true };
const conversation = {
  title: "What is this?",
  model: "tiny",
  pinned: false,
  created: "2026-01-31T12:00:00.000Z",
  updated: "2026-01-31T12:00:00.000Z",
  turns: [turn],
};
const file = { format: "fovea-conversations", version: 1, conversations: [conversation] };

function withTurn(changes: object): object {
  return { ...file, conversations: [{ ...conversation, turns: [{ ...turn, ...changes }] }] };
}

test("conversations are read as they were written, with all versions", async () => {
  const createTurn = (id: string, parentId: string | null, question: string) => ({
    id,
    parentId,
    question,
    pictures: id === "a" ? [{ id: "p", name: "dot.jpg", numBytes: 7 }] : [],
    answer: `Answer to ${question}`,
    ending: "stop",
    isShown: true,
  });
  const record = {
    id: "1",
    title: "Dots",
    isPinned: true,
    model: "tiny",
    createdAt: Date.parse(conversation.created),
    updatedAt: Date.parse(conversation.updated),
    turns: [createTurn("a", null, "One?"), createTurn("b", "a", "Two?"), createTurn("c", "a", "Three?")],
  };
  async function* all() {
    yield toFileConversation(record, ["a", "c"], () => jpeg);
    yield toFileConversation(record, ["a", "c"], () => null);
  }
  const [first, second] = parseFile(await (await toFile(all())).text());
  expect(first).toEqual({
    title: "Dots",
    model: "tiny",
    pinned: true,
    created: conversation.created,
    updated: conversation.updated,
    turns: [
      {
        question: "One?",
        pictures: [{ type: "jpeg", base64: jpeg }],
        assistant: "Answer to One?",
        after: null,
        shown: true,
        ending: "stop",
      },
      { question: "Two?", pictures: [], assistant: "Answer to Two?", after: 0, shown: false, ending: "stop" },
      { question: "Three?", pictures: [], assistant: "Answer to Three?", after: 0, shown: true, ending: "stop" },
    ],
  });
  expect(second!.turns[0]!.pictures).toEqual([]);
});

test.for<[string, unknown, string]>([
  ["other JSON", { messages: [] }, 'This file has no conversations: format must be "fovea-conversations".'],
  ["a list", [file], "the file must be an object."],
  ["a later version", { ...file, version: 2 }, "version is 2; this page reads version 1."],
  [
    "too many conversations",
    { ...file, conversations: Array.from({ length: 201 }, () => conversation) },
    "conversations has 201 entries; the limit is 200.",
  ],
  [
    "no turns",
    { ...file, conversations: [{ ...conversation, turns: null }] },
    "conversations[0].turns must be a list.",
  ],
  [
    "a long title",
    { ...file, conversations: [{ ...conversation, title: "a".repeat(201) }] },
    "conversations[0].title has 201 characters; the limit is 200.",
  ],
  [
    "a time that is none",
    { ...file, conversations: [{ ...conversation, updated: "soon" }] },
    "conversations[0].updated must be a time such as 2026-01-31T12:00:00.000Z.",
  ],
  [
    "a question that is no text",
    withTurn({ user: { toString: "x" } }),
    "conversations[0].turns[0].user must be a text.",
  ],
  [
    "a turn after itself",
    withTurn({ after: 0 }),
    "conversations[0].turns[0].after is 0; it must be null or a number from 0 below 0.",
  ],
  [
    "a turn after __proto__",
    withTurn({ after: "__proto__" }),
    'conversations[0].turns[0].after is "__proto__"; it must be null or a number from 0 below 0.',
  ],
  [
    "an SVG picture",
    withTurn({ user: '<img src="data:image/svg+xml;base64,PHN2Zz4=">' }),
    "conversations[0].turns[0].user: picture 1 has the type svg+xml; it must be one of jpeg, png, webp.",
  ],
  [
    "a type of an object",
    withTurn({ user: '<img src="data:image/constructor;base64,PHN2Zz4=">' }),
    "conversations[0].turns[0].user: picture 1 has the type constructor; it must be one of jpeg, png, webp.",
  ],
  [
    "broken base64",
    withTurn({ user: '<img src="data:image/jpeg;base64,/9j/%%%%">' }),
    "conversations[0].turns[0].user: picture 1 is not valid base64.",
  ],
  [
    "truncated base64",
    withTurn({ user: '<img src="data:image/jpeg;base64,/9j/4">' }),
    "conversations[0].turns[0].user: picture 1 is not valid base64.",
  ],
  [
    "HTML as a picture",
    withTurn({ user: `<img src="data:image/jpeg;base64,${btoa("<script>")}">` }),
    "conversations[0].turns[0].user: picture 1 is not a jpeg picture.",
  ],
])("%s is refused with its path", ([, value, message]) => {
  expect(() => parseFile(JSON.stringify(value))).toThrow(new FileError(message));
});

test("text that is not JSON is refused", () => {
  expect(() => parseFile("<html>")).toThrow(/^This file is not JSON: /);
});

test("names of object properties are not followed", () => {
  const text = JSON.stringify(file).replace('"title"', '"__proto__":{"polluted":true},"title"');
  const [parsed] = parseFile(text);
  expect(Object.keys(parsed!).toSorted()).toEqual(["created", "model", "pinned", "title", "turns", "updated"]);
  expect({}).not.toHaveProperty("polluted");
});
