import { expect, test } from "vitest";

import type { ExtraArguments } from "../../engine/index.ts";
import { createLogger } from "../../functions/logger.ts";
import { warnOfRefusedDefaults } from "../../functions/start-warnings.ts";
import { createScriptedEngine } from "../support/engine/scripted-engine.ts";

type Arguments = ExtraArguments;

/** Messages logged at start by a service whose logits processor rejects the arguments. */
function warningsFor(defaultExtraArguments: Arguments, problemWith: (given: Arguments) => string | null): string[] {
  const engine = createScriptedEngine(() => []);
  engine.refusalOf = ({ extraArgs }) => {
    const reason = problemWith(extraArgs);
    return reason === null ? null : { name: "steering:Strict", reason, cause: null };
  };
  const messages: string[] = [];
  const write = (line: string) => messages.push((JSON.parse(line) as { message: string }).message);
  warnOfRefusedDefaults(engine, { defaultExtraArguments }, createLogger({ level: "warn", write }));
  return messages;
}

const mustBeNumber = ({ target }: Arguments) =>
  target === undefined || typeof target === "number" ? null : "target must be a number.";

test("a default that its processor rejects causes a warning with the variable, the processor and the reason", () => {
  expect(warningsFor({ target: "x" }, mustBeNumber)).toEqual([
    "LOGITS_PROCESSOR_DEFAULT_ARGS: steering:Strict rejects requests that do not override these defaults: target must be a number.",
  ]);
});

test("valid defaults, and no defaults, cause no warning", () => {
  expect(warningsFor({ target: 1 }, mustBeNumber)).toEqual([]);
  expect(warningsFor({}, mustBeNumber)).toEqual([]);
});

test("an argument that every request must bring itself causes no warning", () => {
  const needsTarget = (given: Arguments) => ("target" in given ? mustBeNumber(given) : "target is missing.");
  expect(warningsFor({ strength: 2 }, needsTarget)).toEqual([]);
  expect(warningsFor({ target: "x" }, needsTarget)).toEqual([expect.stringContaining("target must be a number.")]);
});
