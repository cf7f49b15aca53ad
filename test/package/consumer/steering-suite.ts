/** The contract suite in a user's test file, for `node --test` and for Vitest. */
import type { EngineConfig } from "fovea";
import { testLogitsProcessor } from "fovea/testing";

import { OnlyToken } from "./steering.ts";

testLogitsProcessor("OnlyToken", {
  create: () => new OnlyToken({} as EngineConfig, "cpu", {}),
  using: [{ extraArgs: { only_token: 3 } }, { extraArgs: { only_token: 7 } }],
});
