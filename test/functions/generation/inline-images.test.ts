import * as fc from "fast-check";
import { expect, test } from "vitest";

import { splitInlineImages } from "../../../functions/generation/inline-images.ts";
import { HttpError } from "../../../functions/http/errors.ts";

const url = (type: string, data: string) => `data:image/${type};base64,${data}`;
const tag = (type: string, data: string) => `<img src="${url(type, data)}">`;
const text = (content: string) => ({ type: "text", text: content });
const image = (type: string, data: string) => ({ type: "image", reference: url(type, data) });
const long = "QUJD".repeat(100);

const base64 = fc.stringMatching(/^[A-Za-z0-9+/=]{1,12}$/);
const plain = fc.oneof(fc.string(), fc.constantFrom("<img src=", '<img src="data:image/', '">', "<", "data:image/png"));

test("finds every picture and keeps every character between", () => {
  const pieces = fc.array(fc.tuple(plain, fc.constantFrom("jpeg", "png", "webp"), base64), { minLength: 1 });
  fc.assert(
    fc.property(pieces, plain, (given, end) => {
      const prompt = given.map(([before, type, data]) => before + tag(type, data)).join("") + end;
      const parts = splitInlineImages(prompt, "prompt") ?? [];
      expect(parts.filter(({ type }) => type === "image")).toEqual(given.map(([, type, data]) => image(type, data)));
      const joined = parts
        .map((part) => (part.type === "text" ? part.text : `<img src="${String(part.reference)}">`))
        .join("");
      expect(joined).toBe(prompt);
    }),
  );
});

test.for<[string, string]>([
  ["no picture", "What is <img> for?"],
  ["another attribute", `<img alt="" src="${url("jpeg", "QUJD")}">`],
  ["another quote", `<img src='${url("jpeg", "QUJD")}'>`],
  ["a closed element", `<img src="${url("jpeg", "QUJD")}"/>`],
  ["a space in the data", `<img src="${url("jpeg", "QU JD")}">`],
  ["no data", tag("jpeg", "")],
  ["a reference without a tag", `<p>See ${url("png", long)}`],
  ["a reference behind a tag", `<img src="a.png"> ${url("png", long)}`],
  ["an address", `<img src="https://example.com/data:image/png;${"a".repeat(600)}">`],
  ["an example with dots", '<img src="data:image/jpeg;base64,...">'],
  ["a short tag of another type", tag("gif", "R0lGODlh")],
  ["a short tag without its end", `<img src="${url("png", "QUJD")}`],
  ["upper case", tag("JPEG", "QUJD")],
])("leaves text as it is: %s", ([, prompt]) => {
  expect(splitInlineImages(prompt, "prompt")).toBeNull();
});

test("a tag inside an unfinished tag is a picture", () => {
  const parts = splitInlineImages(`a<img src="data:image/jpeg;base64,${tag("png", "QUJD")}b`, "prompt");
  expect(parts).toEqual([text('a<img src="data:image/jpeg;base64,'), image("png", "QUJD"), text("b")]);
});

test.for<[string, string, RegExp]>([
  ["cut off", `x<img src="${url("jpeg", long)}`, /ends at character \d+ without ">/],
  ["closed wrongly", `<img src="${url("jpeg", long)}"/>`, /ends at character \d+ without ">/],
  ["broken by a line end", tag("jpeg", `${long}\n${long}`), /ends at character \d+ without ">/],
  ["wrapped into lines", tag("jpeg", long.replace(/.{76}/g, "$&\r\n")), /ends at character 109 without ">/],
  ["of another type", tag("svg+xml", long), /has the type image\/svg\+xml; expected <img src=/],
  [
    "in single quotes",
    `a <img src='${url("png", long)}'>`,
    /at character 12 of the text has another form; expected <img/,
  ],
  ["behind another attribute", `<img alt="a" src="${url("png", long)}">`, /at character 18 of the text/],
  ["in upper case", `<IMG SRC="${url("png", long).toUpperCase()}">`, /has another form/],
  ["behind two spaces", `<img  src="${url("png", long)}">`, /has another form/],
  ["without quotes", `<img src=${url("jpeg", long)}>`, /has another form/],
  ["with a parameter", `<img src="${url("png;charset=utf-8", long)}">`, /has another form/],
  ["behind a right one", `${tag("png", "QUJD")}<img src='${url("png", long)}'>`, /at character 48 of the text/],
])("rejects a picture that is %s", ([, prompt, message]) => {
  const refused = (): unknown => splitInlineImages(prompt, "messages[3].content");
  expect(refused).toThrow(message);
  expect(refused).toThrow(HttpError);
  expect(refused).toThrow(expect.objectContaining({ status: 400, parameter: "messages[3].content" }));
});

test("reads each character a bounded number of times", () => {
  // Twenty million characters of openings: one more pass over the rest for each would never end.
  const openings = '<img src="data:image/png;base64,AAAA'.repeat(500_000);
  expect(splitInlineImages(openings, "prompt")).toBeNull();
  expect(splitInlineImages(openings + tag("png", "QUJD"), "prompt")).toHaveLength(2);
  for (const [piece, count] of [
    ["data:image/", 500_000],
    ["<img a='data:image/;", 500_000],
    [" data:image/png;base64,AAAA", 200_000],
  ] as const) {
    expect(splitInlineImages(`<img ${piece.repeat(count)}`, "prompt")).toBeNull();
  }
});
