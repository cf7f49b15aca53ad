import { RuleTester } from "oxlint/plugins-dev";
import { describe, test } from "vitest";

import { importOrder } from "../../lint/plugin.ts";

RuleTester.describe = describe;
RuleTester.it = test;

const message = "Sort the imports: node:, packages, own modules after a blank line, each by path (oxlint --fix).";
const errors = [{ message }];

const sorted = `/** Header. */
import { readFile } from "node:fs";
import { z } from "zod";

import { a } from "../a.ts";
import type { A } from "../a.ts";
import { b } from "./b.ts";
`;

new RuleTester({ languageOptions: { parserOptions: { lang: "ts" } } }).run("import-order", importOrder, {
  valid: [
    sorted,
    'import { b } from "./b.ts";\nimport { c } from "./c.ts";\n',
    // The order of side effects is the author's.
    'import "./z.ts";\nimport { b } from "./b.ts";\n',
    'import { b } from "./b.ts";\n// Belongs to a.\nimport { a } from "./a.ts";\n',
  ],
  invalid: [
    {
      code: `/** Header. */
import { b } from "./b.ts";
import type { A } from "../a.ts";
import { a } from "../a.ts";
import { z } from "zod";
import { readFile } from "node:fs";
`,
      output: sorted,
      errors,
    },
    {
      code: 'import { z } from "zod";\nimport { a } from "./a.ts";\n',
      output: 'import { z } from "zod";\n\nimport { a } from "./a.ts";\n',
      errors,
    },
  ],
});
