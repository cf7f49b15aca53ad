/** Enforced formats of JSON strings, as patterns. Strings with other formats may be any text. */

const date = String.raw`\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])`;
const hour = String.raw`([01]\d|2[0-3])`;
const time = String.raw`${hour}:[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+\-]${hour}:[0-5]\d)`;

const days = String.raw`\d+D`;
const months = String.raw`\d+M(${days})?`;
const dateDuration = String.raw`(${days}|${months}|\d+Y(${months})?)`;
const seconds = String.raw`\d+S`;
const minutes = String.raw`\d+M(${seconds})?`;
const timeDuration = String.raw`T(${seconds}|${minutes}|\d+H(${minutes})?)`;

const atom = "[a-zA-Z0-9_!#$%&'*+/=?^`{|}~\\-]+";
const quotedLocal = String.raw`"(\\[ -~]|[ !#-\[\]-~])*"`;
const label = (characters: string, inner: string): string => `[${characters}]([${inner}]*[${characters}])?`;

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
  `::(ffff(:0{1,4})?:)?${ipv4}`,
  `(${group}:){1,4}:${ipv4}`,
].join("|");

const encoded = `%${hex}{2}`;
const unreserved = "a-zA-Z0-9_.~!$&'()*+,;=\\-";
const several = (characters: string): string => `([${characters}]|${encoded})`;
const authority = `(${several(`${unreserved}:`)}*@)?${several(unreserved)}*(:\\d*)?`;
const segment = several(`${unreserved}:@`);
const segments = `(/${segment}*)*`;
const query = `(\\?${several(`${unreserved}:@/?`)}*)?`;
const fragment = `(#${several(`${unreserved}:@/?`)}*)?`;
const rootless = `(${segment}+${segments})?`;
const uri = `[a-zA-Z][a-zA-Z0-9+.\\-]*:(//${authority}${segments}|/?${rootless})${query}${fragment}`;

const templateCharacter = `([a-zA-Z0-9_]|${encoded})`;
const templateVariable = String.raw`${templateCharacter}(\.?${templateCharacter})*(:[1-9]\d?\d?\d?|\*)?`;
const pointer = "(/([^/~]|~[01])*)*";

export const patternsByFormat: ReadonlyMap<string, string> = new Map([
  ["date", date],
  ["time", time],
  ["date-time", `${date}T${time}`],
  ["duration", `P(${dateDuration}(${timeDuration})?|${timeDuration}|\\d+W)`],
  [
    "email",
    `(${atom}(\\.${atom})*|${quotedLocal})@${label("A-Za-z0-9", "\\-A-Za-z0-9")}(\\.[A-Za-z0-9][\\-A-Za-z0-9]*[A-Za-z0-9])*`,
  ],
  ["hostname", `${label("a-z0-9", "a-z0-9\\-")}(\\.${label("a-z0-9", "a-z0-9\\-")})*`],
  ["ipv4", ipv4],
  ["ipv6", ipv6],
  ["uuid", `${hex}{8}-${hex}{4}-${hex}{4}-${hex}{4}-${hex}{12}`],
  ["uri", uri],
  [
    "uri-reference",
    `${uri}|(//${authority}${segments}|/${rootless}|${several(`${unreserved}@`)}+${segments})?${query}${fragment}`,
  ],
  [
    "uri-template",
    `([!#-$&(-;=?-\\[\\]_a-z~]|${encoded}|\\{[+#./;?&=,!@|]?${templateVariable}(,${templateVariable})*\\})*`,
  ],
  ["json-pointer", pointer],
  ["relative-json-pointer", `(0|[1-9]\\d*)(#|${pointer})`],
]);
