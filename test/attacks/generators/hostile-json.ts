/** Values that no field expects, and ways to put them into an otherwise valid body. */
import * as fc from "fast-check";

import { changeAt, fromValue, pathsOf, Pairs, RawJson, writeJson } from "./json-tree.ts";
import type { Json } from "./json-tree.ts";

/** Names that JavaScript objects have, or that code trusts. */
export const trickyNames = [
  "__proto__",
  "constructor",
  "prototype",
  "toString",
  "valueOf",
  "hasOwnProperty",
  "toJSON",
  "then",
  "length",
  "Symbol.iterator",
  "",
  "\u0000",
  "\ufeff",
  " ",
  "0",
  "-1",
  "1e3",
  "NaN",
  "a.b[0]",
] as const;

/** Texts that a tokenizer, a template, a log, a header or a terminal may interpret. */
export const trickyTexts = [
  "",
  " ",
  "\u0000",
  "a\u0000b",
  "\ufeffa",
  "\u202eabc\u2066",
  "\ud800",
  "\udc00\ud83d",
  "e\u0301\u0301\u0301\u0301",
  "\u{1f469}\u200d\u{1f680}",
  "\u2028\u2029",
  "İıſK",
  "<s></s><unk><pad>",
  "<image>",
  "<image><image><image>",
  '<img src="http://127.0.0.1:1/a.png">',
  "<|im_start|>system",
  "[INST] <<SYS>>",
  "{{ 7 * 7 }}{% for i in range(1000000000) %}a{% endfor %}",
  "{%- set x = ''.__class__ -%}",
  "${7*7}`id`$(id)",
  "%s%n%d%00",
  "\r\nX-Injected: 1\r\n\r\n",
  "\u001b[2J\u001b]0;a\u0007",
  "data: [DONE]\n\n",
  "null",
  "undefined",
  "[object]",
  "true",
  "-1",
  ...trickyNames,
] as const;

/** As written in the text: some are beyond every numeric type. */
const numberTexts = [
  "0",
  "-0",
  "1",
  "-1",
  "0.5",
  "-0.5",
  "1.0",
  "1.0000000000000001",
  "5e-324",
  "1e-400",
  "1e308",
  "1.7976931348623157e308",
  "-1e308",
  "1e400",
  "-1e400",
  "127",
  "255",
  "256",
  "597",
  "598",
  "65535",
  "2147483647",
  "2147483648",
  "-2147483649",
  "4294967295",
  "4294967296",
  "9007199254740991",
  "9007199254740993",
  "-9007199254740993",
  "9223372036854775807",
  "9223372036854775808",
  "-9223372036854775809",
  "18446744073709551616",
  "1E+2",
  `1${"0".repeat(400)}`,
  `0.${"0".repeat(400)}1`,
] as const;

/** The beginning of a nesting level. */
const nestings = ["[", '{"a":', '[{"content":', '{"anyOf":[', '{"properties":{"a":'] as const;

const number = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...numberTexts) },
  { weight: 1, arbitrary: fc.double().map((value) => (Number.isFinite(value) ? String(value) : "1e999")) },
  { weight: 1, arbitrary: fc.integer({ min: -700, max: 700 }).map(String) },
);
const hostileNumber: fc.Arbitrary<Json> = number.map((text) => new RawJson(text, () => text));

const hostileText: fc.Arbitrary<Json> = fc.oneof(
  fc.constantFrom(...trickyTexts),
  fc.string({ unit: "binary", maxLength: 30 }),
  fc
    .tuple(fc.constantFrom("a", " ", "\u0000", "é", "\u{1f469}", "<image>", "a\n", "\\", "{{"), fc.nat(20_000))
    .map(([unit, count]) => repeatedText(unit, count)),
);

const wrongType: fc.Arbitrary<Json> = fc.constantFrom(
  ...[null, true, false, [], {}, [[]], [{}], [null], { a: null }, ["a", 1], { type: "text" }, { url: 1 }].map(
    fromValue,
  ),
);

const trickyObject: fc.Arbitrary<Json> = fc
  .array(fc.tuple(fc.constantFrom(...trickyNames), fc.oneof(hostileNumber, wrongType)), { minLength: 1, maxLength: 4 })
  .map((entries) => new Pairs(entries));

const small: fc.Arbitrary<Json> = fc.oneof(hostileNumber, hostileText, wrongType, trickyObject);

/** A short element and its number of repetitions. */
function repeated(count: fc.Arbitrary<number>, maxLength: number): fc.Arbitrary<readonly [Json, number]> {
  return fc.tuple(
    small.map((element) => (writeJson(element).length > maxLength ? -1 : element)),
    count,
  );
}

/** Values that are hostile by their kind, with at most a few ten thousand elements or levels. */
export const hostileValue: fc.Arbitrary<Json> = fc.oneof(
  { weight: 4, arbitrary: hostileNumber },
  { weight: 3, arbitrary: hostileText },
  { weight: 3, arbitrary: wrongType },
  { weight: 2, arbitrary: trickyObject },
  { weight: 1, arbitrary: repeated(fc.nat(3000), 40).map(([element, count]) => repeatedElement(element, count)) },
  { weight: 1, arbitrary: repeated(fc.nat(3000), 40).map(([value, count]) => manyKeys(value, count)) },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom(...nestings), fc.nat(6000)).map(([by, depth]) => nested(by, depth)),
  },
);

/** Mostly up to a million, sometimes as many as the longest body can contain. */
const hugeCount = fc.oneof(
  { weight: 7, arbitrary: fc.integer({ min: 30_000, max: 1_000_000 }) },
  { weight: 1, arbitrary: fc.integer({ min: 1_000_000, max: 8_000_000 }) },
);

/** Values that are hostile by their size: up to some ten megabytes. */
export const hugeValue: fc.Arbitrary<Json> = repeated(hugeCount, 2).chain(([value, count]) =>
  fc.constantFrom(
    repeatedElement(value, count),
    manyKeys(value, Math.ceil(count / 4)),
    repeatedText("a", count * 3),
    ...nestings.map((by) => nested(by, Math.ceil(count / 5))),
  ),
);

function repeatedElement(element: Json, count: number): RawJson {
  return new RawJson(`a list of ${count} × ${writeJson(element).slice(0, 40)}`, () => {
    const text = writeJson(element);
    return `[${`${text},`.repeat(count)}${text}]`;
  });
}

function repeatedText(unit: string, count: number): RawJson {
  return new RawJson(`a text of ${count} × ${JSON.stringify(unit)}`, () => JSON.stringify(unit.repeat(count)));
}

function manyKeys(value: Json, count: number): RawJson {
  return new RawJson(`an object of ${count} keys with ${writeJson(value).slice(0, 40)}`, () => {
    const text = writeJson(value);
    return `{${Array.from({ length: count }, (_, index) => `"${index.toString(36)}":${text}`).join()}}`;
  });
}

function nested(by: (typeof nestings)[number], depth: number): RawJson {
  const closing = Array.from(by.replace(/"[^"]*"|:/g, ""))
    .toReversed()
    .join("")
    .replaceAll("[", "]")
    .replaceAll("{", "}");
  return new RawJson(`${depth} levels of ${by}`, () => `${by.repeat(depth)}1${closing.repeat(depth)}`);
}

/** A change of a body at a random place. */
export interface Mutation {
  readonly name: string;
  readonly apply: (json: Json) => Json;
}

/** Replaces an existing value with one of `values`. */
export function replacement(values: fc.Arbitrary<Json>): fc.Arbitrary<Mutation> {
  return atSomePlace(values.map((value) => [`is ${nameOf(value)}`, () => [value]] as const));
}

/** Replaces, drops, duplicates, wraps or extends an existing value. */
export function mutation(values: fc.Arbitrary<Json>): fc.Arbitrary<Mutation> {
  const key = fc.constantFrom(...trickyNames, "extra");
  return fc.oneof(
    { weight: 6, arbitrary: replacement(values) },
    { weight: 1, arbitrary: atSomePlace(fc.constant(["is left out", () => []])) },
    {
      weight: 1,
      arbitrary: atSomePlace(values.map((value) => [`comes again as ${nameOf(value)}`, (json) => [json, value]])),
    },
    { weight: 1, arbitrary: atSomePlace(fc.constant(["is in a list", (json) => [[json]]])) },
    {
      weight: 2,
      arbitrary: atSomePlace(
        fc.tuple(key, values).map(([name, value]) => [`has more: ${name}`, (json) => [withMore(json, name, value)]]),
      ),
    },
  );
}

/** A named change of a value; an empty result leaves it out. */
type Change = readonly [name: string, change: (json: Json) => readonly Json[]];

function atSomePlace(changes: fc.Arbitrary<Change>): fc.Arbitrary<Mutation> {
  return fc.tuple(fc.nat(2 ** 20), changes).map(([place, [name, change]]) => ({
    name,
    apply(json) {
      const paths = pathsOf(json);
      return changeAt(json, paths[place % paths.length]!, change);
    },
  }));
}

function withMore(json: Json, key: string, value: Json): Json {
  if (json instanceof Pairs) return new Pairs([...json.entries, [key, value]]);
  return Array.isArray(json) ? [...(json as readonly Json[]), value] : value;
}

function nameOf(json: Json): string {
  return json instanceof RawJson ? json.name : writeJson(json).slice(0, 60);
}
