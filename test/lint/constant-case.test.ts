import { RuleTester } from "oxlint/plugins-dev";
import { describe, test } from "vitest";

import { constantCase } from "../../lint/plugin.ts";

RuleTester.describe = describe;
RuleTester.it = test;

const number = (name: string) => ({ message: `${name} is a number: its name must be UPPER_SNAKE_CASE.` });
const other = (name: string) => ({ message: `${name} is not a number: its name must be camelCase.` });

new RuleTester({ languageOptions: { parserOptions: { lang: "ts" } } }).run("constant-case", constantCase, {
  valid: [
    "const MAX_ROWS = 32;",
    "export const LIMIT_BYTES: number = 8 * 1024 ** 2;",
    "const TOTAL = MAX_ROWS + 1;",
    "const pattern = /x/;",
    "const names = ['a'] as const;",
    "const sum = first + second;",
    // Only the type of a call tells what it returns.
    "const MAX_EXPONENT = Math.log2(8); const logger = createLogger();",
    "function f() { const maxRows = 32; }",
    "let numCalls = 0;",
  ],
  invalid: [
    { code: "const maxRows = 32;", errors: [number("maxRows")] },
    { code: "export const maxBytes = 2n ** 20n;", errors: [number("maxBytes")] },
    { code: "const lowest = -(1 + MAX_ROWS);", errors: [number("lowest")] },
    { code: "const ratio = (width / 2) as number;", errors: [number("ratio")] },
    { code: "const NAMES = ['a'] as const;", errors: [other("NAMES")] },
    { code: "export const FORMATS = new Set();", errors: [other("FORMATS")] },
    { code: "const NAME = 'fovea';", errors: [other("NAME")] },
  ],
});
