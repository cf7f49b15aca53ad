/** Malicious values for the fields of a request, as JSON. */

export interface HostileValue {
  readonly name: string;
  /** Not always valid. */
  readonly json: string;
}

const million = 1_000_000;
const listOf = (element: string): string => `[${`${element},`.repeat(million - 1)}${element}]`;
const nested = (opening: string, closing: string, depth: number): HostileValue => ({
  name: `${depth} levels of ${opening}`,
  json: `${opening.repeat(depth)}1${closing.repeat(depth)}`,
});

/** Too long for every field, but not for the parser. */
export const longValues: readonly HostileValue[] = [
  { name: "a million numbers", json: listOf("-1") },
  { name: "a million strings", json: listOf('"a"') },
  { name: "a string of 10 MB", json: `"${"x".repeat(10 * million)}"` },
];

/** Rejected by the parser. */
export const deepValues: readonly HostileValue[] = [
  { name: "a million objects", json: listOf("{}") },
  { name: "a million names", json: `{${Array.from({ length: million }, (_, index) => `"k${index}":0`).join(",")}}` },
  nested("[", "]", 5000),
  nested("[", "]", 200_000),
  nested('{"a":', "}", 5000),
  nested('{"a":', "}", 200_000),
];

/** Some fields accept some of them. */
export const oddValues: readonly HostileValue[] = [
  'null true false [] {} "" 0 -0 -1 -1e308 1e308 1e999 0.1 5e-324 9007199254740993',
  '"NaN" NaN Infinity undefined "\\ud800" "\\u0000" [[]] [{}] [null] [1] ["a"]',
  '{"a":1} {"":""} {"__proto__":{"a":1}} [1, { "',
  "1".repeat(400),
]
  .flatMap((jsons) => jsons.split(" "))
  .map((json) => ({ name: json.slice(0, 20), json }));

/** The text of a body with `json` in the place of `bodyWith`. */
export function hostileBody(bodyWith: (value: unknown) => unknown, { json }: HostileValue): string {
  return JSON.stringify(bodyWith("\u0000")).replace('"\\u0000"', () => json);
}
