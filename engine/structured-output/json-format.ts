/** Enforced formats of JSON strings, as patterns. Strings with other formats may be any text. */

const monthAndDay = [
  String.raw`(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])`,
  "(0[13-9]|1[0-2])-(29|30)",
  "(0[13578]|1[02])-31",
].join("|");
const leapYear = String.raw`(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)`;
const date = String.raw`(\d{4}-(${monthAndDay})|${leapYear}-02-29)`;
const hour = String.raw`([01]\d|2[0-3])`;
const fraction = String.raw`(\.\d+)?`;
/** Leap seconds are inserted at midnight in UTC; they are written in UTC only. */
const leapSecond = `23:59:60${fraction}(Z|[+\\-]00:00)`;
const time = String.raw`(${hour}:[0-5]\d:[0-5]\d${fraction}(Z|[+\-]${hour}:[0-5]\d)|${leapSecond})`;

const days = String.raw`\d+D`;
const months = String.raw`\d+M(${days})?`;
const dateDuration = String.raw`(${days}|${months}|\d+Y(${months})?)`;
const seconds = String.raw`\d+S`;
const minutes = String.raw`\d+M(${seconds})?`;
const timeDuration = String.raw`T(${seconds}|${minutes}|\d+H(${minutes})?)`;

const atom = "[a-zA-Z0-9_!#$%&'*+/=?^`{|}~\\-]+";
/** Part of a domain's name, of at most 63 characters. */
const label = (characters: string): string => `[${characters}]([${characters}\\-]{0,61}[${characters}])?`;
const emailLabel = label("A-Za-z0-9");
const hostLabel = label("a-z0-9");

const hex = "[0-9A-Fa-f]";
const octet = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const ipv4 = `${octet}(\\.${octet}){3}`;
const group = `${hex}{1,4}`;
/** IPv6 addresses with `::` after at most that many groups. */
const shortened = [1, 2, 3, 4, 5, 6].map((count) => `(${group}:){1,${7 - count}}(:${group}){1,${count}}`);
const ipv6 = [
  `(${group}:){7}${group}`,
  `(${group}:){1,7}:`,
  ...shortened,
  `:((:${group}){1,7}|:)`,
  `(${group}:){6}${ipv4}`,
  `(${group}:){1,5}:${ipv4}`,
  ...[1, 2, 3, 4].map((count) => `(${group}:){1,${5 - count}}(:${group}){1,${count}}:${ipv4}`),
  `:(:${group}){0,5}:${ipv4}`,
].join("|");

const encoded = `%${hex}{2}`;
const unreserved = "a-zA-Z0-9_.~!$&'()*+,;=\\-";
const several = (characters: string): string => `([${characters}]|${encoded})`;
const authority = `(${several(`${unreserved}:`)}*@)?(${several(unreserved)}*|\\[(${ipv6})\\])(:\\d*)?`;
const segment = several(`${unreserved}:@`);
const segments = `(/${segment}*)*`;
const query = `(\\?${several(`${unreserved}:@/?`)}*)?`;
const uriFragment = `(#${several(`${unreserved}:@/?`)}*)?`;
const rootless = `${segment}+${segments}`;
const uri = `[a-zA-Z][a-zA-Z0-9+.\\-]*:(//${authority}${segments}|/(${rootless})?|${rootless})${query}${uriFragment}`;

const templateCharacter = `([a-zA-Z0-9_]|${encoded})`;
const templateVariable = String.raw`${templateCharacter}(\.?${templateCharacter})*(:[1-9]\d?\d?\d?|\*)?`;
const pointer = "(/([^/~]|~[01])*)*";

export const patternsByFormat: ReadonlyMap<string, string> = new Map([
  ["date", date],
  ["time", time],
  ["date-time", `${date}T${time}`],
  ["duration", `P(${dateDuration}(${timeDuration})?|${timeDuration}|\\d+W)`],
  ["email", `${atom}(\\.${atom})*@(${emailLabel}\\.)+${emailLabel}`],
  ["hostname", `${hostLabel}(\\.${hostLabel})*`],
  ["ipv4", ipv4],
  ["ipv6", ipv6],
  ["uuid", `${hex}{8}-${hex}{4}-${hex}{4}-${hex}{4}-${hex}{12}`],
  ["uri", uri],
  [
    "uri-reference",
    `${uri}|(//${authority}${segments}|/(${rootless})?|${several(`${unreserved}@`)}+${segments})?${query}${uriFragment}`,
  ],
  [
    "uri-template",
    `([!#-$&(-;=?-\\[\\]_a-z~]|${encoded}|\\{[+#./;?&=,!@|]?${templateVariable}(,${templateVariable})*\\})*`,
  ],
  ["json-pointer", pointer],
  ["relative-json-pointer", `(0|[1-9]\\d*)(#|${pointer})`],
]);

/** Formats whose texts have a maximum number of characters. */
export const maxLengthByFormat: ReadonlyMap<string, number> = new Map([["hostname", 253]]);

/** In capitals or not, as ajv-formats reads dates and names of hosts; generated texts have one spelling. */
const matchers = new Map(
  Array.from(patternsByFormat, ([name, pattern]) => [name, new RegExp(`^(?:${pattern})$`, "i")]),
);

/** Whether a text has a format. Any text has a format that is not enforced. */
export function hasFormat(text: string, format: string): boolean {
  return text.length <= (maxLengthByFormat.get(format) ?? Infinity) && (matchers.get(format)?.test(text) ?? true);
}
