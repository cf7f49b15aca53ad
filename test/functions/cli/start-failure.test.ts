/** The advice for failures that a test cannot bring about in a process of its own. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { describeLoadFailure } from "../../../functions/cli/start-failure.ts";
import { loadConfig } from "../../../functions/settings/config.ts";

const tooMany = Object.assign(new Error("EMFILE: too many open files, open 'model.safetensors'"), { code: "EMFILE" });

test.for<[string, Error, string]>([
  [
    "a file of the checkpoint",
    new EngineError("invalid_checkpoint", "It cannot be read.", { cause: tooMany }),
    "ulimit",
  ],
  ["a module", tooMany, "ulimit"],
  ["any file of the machine", new Error("ENFILE: file table overflow", { cause: null }), "sysctl fs.file-max"],
])("too many open files when %s is opened ask for a higher limit, not for a download", ([, error, advice]) => {
  const failure = describeLoadFailure(Object.assign(error, { code: "code" }), loadConfig({}));
  expect(failure?.advice).toContain(advice);
});
