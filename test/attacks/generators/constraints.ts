/** Regular expressions, grammars, schemas and choices: odd ones, and small ones that describe enormous languages. */
import * as fc from "fast-check";

/** A named value of `structured_outputs`. */
export interface Constraint {
  readonly name: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

const atom = fc.constantFrom(
  "a",
  ".",
  "[a-z]",
  "[^a]",
  "\\d",
  "\\w",
  "\\s",
  "\\b",
  "\\1",
  "\\p{L}",
  "\\u{1F600}",
  "[\\ud800-\\udfff]",
  "[z-a]",
  "[]",
  "[^]",
  "(?=a)",
  "(?!a)",
  "(?<=a)",
  "(?<name>a)",
  "\\k<name>",
  "(?i:a)",
  "^",
  "$",
  "",
  "\\",
  "(",
  ")",
  "é",
  "\u0000",
  "\ud83d",
);

const quantifier = fc.oneof(
  fc.constantFrom(
    "*",
    "+",
    "?",
    "*?",
    "++",
    "{2}",
    "{,3}",
    "{3,}",
    "{3,2}",
    "{0}",
    "{-1}",
    "{a}",
    "{99999999999}",
    "{0,4294967296}",
  ),
  fc.tuple(fc.nat(70), fc.nat(70)).map(([least, more]) => `{${least},${least + more}}`),
);

const pattern: fc.Arbitrary<string> = fc.letrec<{ pattern: string }>((tie) => ({
  pattern: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    { weight: 3, arbitrary: atom },
    { weight: 3, arbitrary: fc.tuple(tie("pattern"), quantifier).map(([inner, times]) => `(${inner})${times}`) },
    { weight: 2, arbitrary: fc.array(tie("pattern"), { maxLength: 3 }).map((parts) => `(${parts.join("|")})`) },
    { weight: 2, arbitrary: fc.array(tie("pattern"), { maxLength: 3 }).map((parts) => parts.join("")) },
  ),
})).pattern;

/** A way to describe much with little; `size` says how much. */
type Bomb = (size: number) => Readonly<Record<string, unknown>>;

function repeat(unit: string, size: number): string {
  return unit.repeat(size);
}

function grammarOf(size: number, rule: (index: number) => string, last: string): string {
  return [
    ...Array.from({ length: size }, (_, index) => `a${index} ::= ${rule(index)}`),
    `a${size} ::= ${last}`,
    "root ::= a0",
  ].join("\n");
}

function nestedSchema(size: number, wrap: (inner: object) => object): object {
  let schema: object = { type: "integer" };
  for (let level = 0; level < size; level++) schema = wrap(schema);
  return schema;
}

const bombs: Readonly<Record<string, Bomb>> = {
  "groups in groups": (size) => ({ regex: `${repeat("(", size)}a${repeat(")", size)}` }),
  "stars on stars": (size) => ({ regex: `${repeat("(", size)}a${repeat(")*", size)}` }),
  "squared repeats": (size) => ({ regex: `((.?){${size}}){${size}}` }),
  "cubed repeats": (size) => ({ regex: `(((a|b|.)?){${size}}){${size}}` }),
  "a long repeat": (size) => ({ regex: `[a-z]{${size * 100}}` }),
  "a repeat of optional parts": (size) => ({ regex: `(a?b?c?d?e?){${size}}a{${size}}` }),
  "many alternatives": (size) => ({ regex: Array.from({ length: size * 10 }, (_, index) => `a${index}`).join("|") }),
  "overlapping alternatives": (size) => ({
    regex: `(${Array.from({ length: size }, (_, index) => repeat("a", index)).join("|")})*b`,
  }),
  "a choice far back": (size) => ({ regex: `(a|b)*a(a|b){${size}}` }),
  "large classes": (size) => ({ regex: `[\u0001-\u{10ffff}]{${size}}[^\u{1f600}]{${size}}` }),
  "doubling rules": (size) => ({
    grammar: grammarOf(Math.min(size, 60), (index) => `a${index + 1} a${index + 1}`, "[a-z ]?"),
  }),
  "doubling rules with a rest": (size) => ({
    grammar: grammarOf(Math.min(size, 60), (index) => `a${index + 1} a${index + 1} | "b"`, '"a"?'),
  }),
  "ambiguous rules": (size) => ({ grammar: `root ::= a${repeat(" a", size % 40)}\na ::= a a | [a-z ]*` }),
  "left recursion": (size) => ({ grammar: `root ::= root "a" | ${repeat("root? ", size % 40)}"a"` }),
  "hidden left recursion": () => ({ grammar: 'root ::= e root "a" | "a"\ne ::= "" | "b"?' }),
  "endless recursion": () => ({ grammar: "root ::= root" }),
  "rules in a circle": (size) => ({ grammar: grammarOf(size, (index) => `a${index + 1}`, "a0") }),
  palindromes: () => ({ grammar: 'root ::= [a-z ]? | "a" root "a" | "b" root "b" | root root' }),
  "parentheses in a rule": (size) => ({ grammar: `root ::= ${repeat("(", size)}"a"${repeat(")?", size)}` }),
  "a long literal": (size) => ({ grammar: `root ::= "${repeat("a", size * 100)}"` }),
  "thousands of rules": (size) => ({ grammar: grammarOf(size * 10, (index) => `a${index + 1}?`, '"a"') }),
  "objects in objects": (size) => ({
    json: nestedSchema(size, (inner) => ({ type: "object", properties: { a: inner }, required: ["a"] })),
  }),
  "lists in lists": (size) => ({
    json: nestedSchema(size, (items) => ({ type: "array", items, minItems: 2, maxItems: 3 })),
  }),
  "unions in unions": (size) => ({
    json: nestedSchema(Math.min(size, 14), (inner) => ({ anyOf: [inner, { type: "array", items: inner }] })),
  }),
  "lists under a type that is told twice": (size) => ({
    json: nestedSchema(size, (items) => ({ type: ["array", "array"], items })),
  }),
  "objects that require names without schemas": (size) => ({
    json: nestedSchema(size, (inner) => ({ type: "object", required: ["a", "b"], additionalProperties: inner })),
  }),
  "all of all of": (size) => ({ json: nestedSchema(size, (inner) => ({ allOf: [inner] })) }),
  "many optional properties": (size) => ({
    json: {
      type: "object",
      properties: Object.fromEntries(Array.from({ length: size }, (_, index) => [`p${index}`, { type: "string" }])),
    },
  }),
  "a list of so many": (size) => ({ json: { type: "array", items: { type: "string" }, minItems: size * 1000 } }),
  "a text of so many": (size) => ({ json: { type: "string", minLength: size * 1000, maxLength: size * 1000 } }),
  "values of an enum": (size) => ({ json: { enum: Array.from({ length: size * 10 }, (_, index) => index) } }),
  "a schema that is itself": () => ({ json: { $ref: "#" } }),
  "schemas in a circle": () => ({
    json: { $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" },
  }),
  "a tree of schemas": () => ({
    json: {
      type: "object",
      properties: { a: { $ref: "#" }, b: { $ref: "#" }, c: { type: "array", items: { $ref: "#" } } },
    },
  }),
  "a wide range": (size) => ({
    json: { type: "integer", minimum: -(10 ** (size % 300)), maximum: 10 ** (size % 300) },
  }),
  "a range of numbers": (size) => ({
    json: { type: "number", exclusiveMinimum: 10 ** -(size % 300), maximum: 0.1 + 10 ** -(size % 20) },
  }),
  "a pattern that is a bomb": (size) => ({ json: { type: "string", pattern: `^((a?){${size}}){${size}}$` } }),
  "many choices": (size) => ({ choice: Array.from({ length: size * 10 }, (_, index) => `a ${index}`) }),
  "long choices": (size) => ({ choice: Array.from({ length: 20 }, (_, index) => `${repeat("a", size * 10)}${index}`) }),
  "choices that begin alike": (size) => ({
    choice: Array.from({ length: size }, (_, index) => repeat("a", index + 1)),
  }),
  "empty choices": (size) => ({ choice: Array.from({ length: (size % 5) + 1 }, () => "") }),
};

const bomb: fc.Arbitrary<Constraint> = fc
  .tuple(fc.constantFrom(...Object.keys(bombs)), fc.integer({ min: 1, max: 1000 }))
  .map(([name, size]) => ({ name: `${name}, size ${size}`, fields: bombs[name]!(size) }));

const schema: fc.Arbitrary<unknown> = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom<unknown>(
      true,
      false,
      {},
      { type: "string" },
      { type: ["integer", "null"] },
      { const: { a: [1, "é"] } },
      { enum: [] },
      { type: "a" },
    ),
    fc
      .tuple(
        fc.constantFrom(
          "minimum",
          "maximum",
          "multipleOf",
          "minLength",
          "maxLength",
          "minItems",
          "maxItems",
          "minProperties",
        ),
        fc.constantFrom<unknown>(-1, 0, 1, 1.5, 1e9, 1e308, "1", null),
        fc.constantFrom("string", "number", "integer", "array", "object"),
      )
      .map(([key, value, type]) => ({ type, [key]: value })),
    fc
      .tuple(fc.constantFrom("items", "not", "additionalProperties", "contains", "propertyNames", "if"), tie("schema"))
      .map(([key, inner]) => ({ [key]: inner })),
    fc
      .tuple(fc.constantFrom("anyOf", "oneOf", "allOf", "prefixItems"), fc.array(tie("schema"), { maxLength: 3 }))
      .map(([key, inner]) => ({ [key]: inner })),
    fc
      .tuple(
        fc.constantFrom("properties", "patternProperties", "$defs", "dependentSchemas"),
        fc.constantFrom("a", "", "__proto__", "a/b~c", "[", 'é"\\'),
        tie("schema"),
      )
      .map(([key, name, inner]) => ({ type: "object", [key]: Object.fromEntries([[name, inner]]), required: [name] })),
    fc
      .constantFrom("#", "#/$defs/a", "#/a/b", "http://127.0.0.1:1/a.json", "", "#/%", "a~2")
      .map((reference) => ({ $ref: reference })),
    fc.constantFrom("date", "uuid", "email", "ipv6", "regex", "a").map((format) => ({ type: "string", format })),
    pattern.map((text) => ({ type: "string", pattern: text })),
  ),
})).schema;

const grammarText = fc
  .array(
    fc.constantFrom(
      'root ::= "a"',
      "root ::= a",
      "a ::= [a-z]+",
      'a ::= "x" | a "y"',
      "root::=",
      "::=",
      "root ::= [^\\x00]{3,5}",
      'root ::= "\\u{110000}"',
      "root ::= /a*/",
      "start: a",
      'a : "b"+',
      "%import common.WORD",
      "%ignore WS",
      "# comment",
      'root ::= ("a"',
      'root ::= "a',
      "root ::= [",
      "root ::= a{1,}{2}",
      'root ::= TagDispatch(("a", b))',
      "\u0000",
      "é ::= é",
    ),
    { maxLength: 6 },
  )
  .map((lines) => lines.join("\n"));

export const constraint: fc.Arbitrary<Constraint> = fc.oneof(
  { weight: 4, arbitrary: bomb },
  { weight: 3, arbitrary: pattern.map((regex) => ({ name: `regex ${regex.slice(0, 60)}`, fields: { regex } })) },
  { weight: 2, arbitrary: schema.map((json) => ({ name: "a schema", fields: { json } })) },
  { weight: 1, arbitrary: grammarText.map((grammar) => ({ name: "a grammar", fields: { grammar } })) },
  {
    weight: 1,
    arbitrary: fc
      .array(fc.string({ unit: "binary" }), { maxLength: 5 })
      .map((choice) => ({ name: "choices", fields: { choice } })),
  },
);
