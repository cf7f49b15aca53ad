import { RuleTester } from "oxlint/plugins-dev";
import { describe, test } from "vitest";

import { throwsTag } from "../../lint/plugin.ts";

RuleTester.describe = describe;
RuleTester.it = test;

const errors = [{ message: "Say in a @throws tag of its own which errors are thrown." }];

new RuleTester({ languageOptions: { parserOptions: { lang: "ts" } } }).run("throws-tag", throwsTag, {
  valid: [
    "/** Reads a file. */",
    "/**\n * Reads a file.\n *\n * @throws EngineError if there is none.\n */",
    "/** What `apply` throws ends its requests. */",
    "// Throws for 304.",
    "/* Throws for 304. */",
  ],
  invalid: [
    { code: "/** Throws EngineError. */", errors },
    { code: "/** Reads a file; throws EngineError if there is none. */", errors },
    { code: "/**\n * Reads a file.\n * Throws EngineError.\n *\n * @param path Absolute.\n */", errors },
  ],
});
