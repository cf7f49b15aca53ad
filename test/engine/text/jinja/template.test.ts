/** Templates compared with Jinja 3.1 as transformers sets it up. */
import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";

import { formatTime } from "../../../../engine/text/jinja/functions.ts";
import { JinjaTemplate } from "../../../../engine/text/jinja/template.ts";

interface Recorded {
  readonly variables: Readonly<Record<string, unknown>>;
  readonly cases: readonly { readonly template: string; readonly rendered?: string }[];
}

const { variables, cases }: Recorded = JSON.parse(
  await readFile(new URL("../../../fixtures/chat-templates/expressions.json", import.meta.url), "utf8"),
);

function render(template: string): string {
  return new JinjaTemplate(template).render(variables);
}

test.for(cases.filter(({ rendered }) => rendered !== undefined))(
  "$template is rendered as by Jinja",
  ({ template, rendered }) => {
    expect(render(template)).toBe(rendered);
  },
);

test.for(cases.filter(({ rendered }) => rendered === undefined))("$template fails as in Jinja", ({ template }) => {
  expect(() => render(template)).toThrow(/./);
});

describe("errors say what is wrong", () => {
  test.for<[string, string]>([
    ["{% if a %}", "unexpected end of template: expected elif or else or endif"],
    ["{% endfor %}", "unknown tag 'endfor'"],
    ["{{ a", "unexpected end of template"],
    ["{{ 'a }}", `unexpected char "'"`],
    ["{# a", "missing end of comment tag"],
    ["{% raw %}", "missing end of raw directive"],
    ["{{ (a] }}", "unexpected ']'"],
    ["{% include 'other' %}", "unknown tag 'include'"],
    ["{{ nobody.name }}", "'nobody' is undefined"],
    ["{{ 'a' + 1 }}", 'can only concatenate str (not "int") to str'],
    ["{{ 'a' | nosuch }}", "No filter named 'nosuch'."],
    ["{{ 'a' is nosuch }}", "No test named 'nosuch'."],
    ["{{ items_l.append(1) }}", "a template must not call append, which changes a value"],
    ["{{ range(1000000) }}", "Range too big. The sandbox blocks ranges larger than 100000."],
    ["{{ 'abc' * 100000000 }}", "a repetition has more than 16777216 characters or items"],
    ["{{ messages | tojson(width=2) }}", "tojson got an unexpected keyword argument 'width'"],
  ])("%s", ([template, message]) => {
    expect(() => render(template)).toThrow(message);
  });
});

// The locale of the process would spell months differently.
test("times are written in English", () => {
  const date = new Date(2025, 8, 7, 0, 5, 9);
  expect(formatTime(date, "%d %b %Y|%B %-d, %y|%A %a %j|%I:%M %p|%H:%M:%S|%F %T|%%|%Q")).toBe(
    "07 Sep 2025|September 7, 25|Sunday Sun 250|12:05 AM|00:05:09|2025-09-07 00:05:09|%|%Q",
  );
  expect(formatTime(date, "%c|%x %X|%D %R %r|%k %l %P|%C %u %w %U %W|%n%t|%Z%z")).toBe(
    "Sun Sep  7 00:05:09 2025|09/07/25 00:05:09|09/07/25 00:05 12:05:09 AM| 0 12 am|20 7 0 36 35|\n\t|",
  );
});

test("a value that a request sends is data, whatever its names", () => {
  const template = new JinjaTemplate("{{ given.constructor is defined }}{{ given.__proto__ is defined }}{{ given }}");
  const given: unknown = JSON.parse('{"__proto__": {"x": 1}}');
  expect(template.render({ given })).toBe("FalseTrue{'__proto__': {'x': 1}}");
});
