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

test.for<[EngineError["setting"], string]>([
  ["kvLayout", "Leave KV_LAYOUT out, or set it as the reason says."],
  ["maxNumBatchedTokens", "Set MAX_NUM_BATCHED_TOKENS or MAX_NUM_SEQS to a number that fits."],
  ["gpuMemoryUtilization", "Set GPU_MEMORY_UTILIZATION, KV_CACHE_MEMORY_BYTES or NUM_GPU_BLOCKS_OVERRIDE"],
  ["largestExpectedImage", "Give smaller sizes in LIMIT_MM_PER_PROMPT"],
  ["hubToken", "Set HF_TOKEN to a token"],
  ["hubEndpoint", "Leave HF_ENDPOINT out"],
  ["azure", "Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME"],
  ["gcsEmulatorUrl", "Leave STORAGE_EMULATOR_HOST out"],
  ["loraModules", "LORA_ADAPTER takes one for all requests."],
])("an error about %s names the environment variable in its advice", ([setting, advice]) => {
  const error = new EngineError("invalid_configuration", "It does not fit.", { setting: setting! });
  expect(describeLoadFailure(error, loadConfig({}))?.advice).toContain(advice);
});
