/** The error of a failed start: one line with what is wrong and what to do. */
import { execFile, execFileSync } from "node:child_process";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let temporary: TemporaryFolder;
/** A token of it takes 2 KiB in the KV cache, and its sequences have up to 2048. */
const smallModel = fileURLToPath(new URL("../../../models/fovea-shapes", import.meta.url));
/** Folder of a valid checkpoint. */
let whole: string;

beforeAll(async () => {
  temporary = await createTemporaryFolder();
  whole = await copyOfCheckpoint("whole");
});

afterAll(() => temporary[Symbol.asyncDispose]());

async function copyOfCheckpoint(name: string): Promise<string> {
  const folder = join(temporary.path, name);
  await mkdir(folder);
  const files = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"];
  await Promise.all(files.map((file) => cp(join(goldensFolder, "llama", file), join(folder, file))));
  return folder;
}

interface ErrorLine {
  readonly message: string;
  readonly code: string;
  readonly reason: string;
  readonly advice: string;
}

/** The only error of a log; its fields contain no stack. */
function errorLineOf(stdout: string): ErrorLine {
  const lines = stdout.trim().split("\n");
  const errors = lines
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter(({ level }) => level === "error");
  expect(errors).toHaveLength(1);
  expect(Object.keys(errors[0]!)).toEqual(["time", "level", "message", "code", "reason", "advice"]);
  expect(JSON.stringify(errors[0])).not.toContain("\\n");
  return errors[0] as unknown as ErrorLine;
}

async function errorOfStart(environment: Readonly<Record<string, string>>, expectedExitCode = 1): Promise<ErrorLine> {
  await using cli = startCli([], { HOST: "127.0.0.1", PORT: "0", BATCH_STORE: "none", ...environment });
  expect(await cli.exitCode).toBe(expectedExitCode);
  expect(cli.stderr()).toBe("");
  return errorLineOf(cli.stdout());
}

test.for<[Readonly<Record<string, string>>, RegExp]>([
  [{ TOOL_CALL_PARSER: "hermes9" }, /^TOOL_CALL_PARSER is "hermes9": expected hermes, .*, or module:Export\.$/],
  [{ REASONING_PARSER: "nowhere:Format" }, /^REASONING_PARSER: nowhere:Format could not be loaded: /],
])("%o ends the start as an invalid setting", async ([environment, reason]) => {
  expect(await errorOfStart({ MODEL: smallModel, ...environment }, 2)).toMatchObject({
    code: "invalid_configuration",
    reason: expect.stringMatching(reason),
    advice: "Correct the setting that the reason names; fovea --help lists them.",
  });
});

test.for<[string, (folder: string) => unknown, string]>([
  [
    "a billion layers",
    async (folder) => {
      const config = JSON.parse(await readFile(join(folder, "config.json"), "utf8")) as object;
      await writeFile(join(folder, "config.json"), JSON.stringify({ ...config, num_hidden_layers: 1e9 }));
    },
    "config.json: num_hidden_layers is 1000000000; expected at most 1024.",
  ],
  [
    "an empty tokenizer",
    (folder) => writeFile(join(folder, "tokenizer.json"), "{}"),
    "tokenizer.json of the checkpoint: model is missing; expected an object.",
  ],
  [
    "a named pipe for its weights",
    async (folder) => {
      await rm(join(folder, "model.safetensors"));
      execFileSync("mkfifo", [join(folder, "model.safetensors")]);
    },
    "model.safetensors is a named pipe, not a file.",
  ],
])("a checkpoint with %s ends the start with the reason and advice", async ([name, breakIt, reason]) => {
  const folder = await copyOfCheckpoint(name);
  await breakIt(folder);
  expect(await errorOfStart({ MODEL: folder, CACHE_FOLDER: join(temporary.path, "cache") })).toMatchObject({
    message: `Cannot serve the model ${folder}.`,
    code: "invalid_checkpoint",
    reason,
    advice: "Correct the file that the reason names, or download the checkpoint again.",
  });
});

test("weights that are NaN end the start with advice about them, not about the device", async () => {
  const folder = await copyOfCheckpoint("not numbers");
  const bytes = await readFile(join(folder, "model.safetensors"));
  const weightsAt = 8 + Number(bytes.readBigUInt64LE(0));
  // NaN as float32, bfloat16 and float16.
  await writeFile(join(folder, "model.safetensors"), bytes.fill(0xff, weightsAt));
  expect(await errorOfStart({ MODEL: folder, CACHE_FOLDER: join(temporary.path, "cache") })).toMatchObject({
    code: "runtime_failed",
    reason: "No token is left to sample: the model returned logits that are not numbers.",
    advice: expect.stringMatching(/^Download the checkpoint again: its weights may contain NaN\..* set DTYPE/),
  });
});

test.for<[string, () => Promise<string> | string]>([
  [
    "a file",
    async () => {
      await writeFile(join(temporary.path, "occupied"), "");
      return join(temporary.path, "occupied");
    },
  ],
  ["where the system makes no folders", () => "/proc/fovea"],
])("a CACHE_FOLDER that is %s ends the start and is named", async ([, cacheFolderOf]) => {
  const cacheFolder = await cacheFolderOf();
  expect(await errorOfStart({ MODEL: whole, CACHE_FOLDER: cacheFolder })).toMatchObject({
    code: "invalid_configuration",
    reason: expect.stringMatching(/^The cache folder cannot store [^/]+ \(E[A-Z]+: [^/]+\)\.$/),
    advice: `CACHE_FOLDER is ${cacheFolder}: set it to a writable folder with enough free space.`,
  });
});

test.for<[string, Readonly<Record<string, string>>, RegExp, string]>([
  [
    "KV_CACHE_MEMORY_BYTES that is too small",
    { KV_CACHE_MEMORY_BYTES: "1MiB", MODEL: smallModel },
    /its limit is 1048576 bytes\. \d+ tokens would fit\./,
    "Raise KV_CACHE_MEMORY_BYTES, or set MAX_MODEL_LEN to a length that fits.",
  ],
  [
    "NUM_GPU_BLOCKS_OVERRIDE that is too small",
    { NUM_GPU_BLOCKS_OVERRIDE: "3", KV_LAYOUT: "paged", MODEL: smallModel },
    /of 3 blocks of 16 tokens has no room for one sequence of \d+ tokens\. A sequence of 32 tokens would fit\.$/,
    "Set MAX_MODEL_LEN to a length within the limit.",
  ],
  [
    "CHAT_TEMPLATE that is no file",
    { CHAT_TEMPLATE: "/nowhere.jinja" },
    /neither an existing file nor a Jinja template: "\/nowhere\.jinja"/,
    "Set CHAT_TEMPLATE to the path of a template, or to the Jinja text itself.",
  ],
  [
    "KV_CACHE_DTYPE that the layout lacks",
    { KV_CACHE_DTYPE: "int8", KV_LAYOUT: "paged" },
    /on cpu has no int8, which is for KV slots/,
    "Leave KV_CACHE_DTYPE out, or set it to model.",
  ],
  [
    "DTYPE that the device lacks",
    { DTYPE: "float16" },
    /^dtype float16 is not for cpu: .* Set dtype to one of float32, int8, int4\.$/,
    "Leave DTYPE out, or set it to a type that the reason names.",
  ],
  [
    "PROMPT_DTYPE without integers beside it",
    { PROMPT_DTYPE: "int8" },
    /^8-bit weights for prompts stand beside weights of dtype int4/,
    "Leave PROMPT_DTYPE out, or set it to model.",
  ],
  [
    "SPECULATIVE_CONFIG for a recurrent model",
    { SPECULATIVE_CONFIG: '{"method": "ngram", "num_speculative_tokens": 4}', MODEL: join(goldensFolder, "lfm2") },
    /^Drafts of tokens cannot be checked here: recurrent states cannot be taken back\.$/,
    "Leave SPECULATIVE_CONFIG out, or change the setting that the reason names, if it names one.",
  ],
  [
    "BLOCK_SIZE for slots",
    { BLOCK_SIZE: "32", KV_LAYOUT: "slots" },
    /Leave the block size \(32\) out, or choose the KV layout "paged"\.$/,
    "Leave BLOCK_SIZE and NUM_GPU_BLOCKS_OVERRIDE out, or set them as the reason says.",
  ],
  [
    "VISION_DTYPE for a text model",
    { VISION_DTYPE: "float32" },
    /^This model has no vision part\./,
    "Leave VISION_DTYPE, VISION_DEVICE, PROJECTOR_DTYPE and PROJECTOR_DEVICE out, or set them as the reason says.",
  ],
  [
    "MULTIMODAL_PIPELINE that does not exist",
    { MULTIMODAL_PIPELINE: "blip3" },
    /^There is no pipeline "blip3"; available are /,
    "Leave MULTIMODAL_PIPELINE out, or set it to a pipeline that fits; PIPELINE_PATH lists the folders of your own.",
  ],
  [
    "MULTIMODAL_PIPELINE without its parameters",
    { MULTIMODAL_PIPELINE: "minigpt4-7b" },
    /^The pipeline parameter \w+ is missing; set it to /,
    "Correct the parameter in PIPELINE_PARAMS.",
  ],
])("a %s ends the start and is named in the advice", async ([, environment, reason, advice]) => {
  const error = await errorOfStart({ MODEL: whole, CACHE_FOLDER: join(temporary.path, "cache"), ...environment });
  expect(error).toMatchObject({ code: "invalid_configuration", reason: expect.stringMatching(reason), advice });
});

test("a disk without room for the cache ends the start with the system's message", async () => {
  const main = fileURLToPath(new URL("../../../functions/cli/main.js", import.meta.url));
  // No file may exceed 8 kB, which simulates a full disk.
  const command = 'ulimit -f 16; exec "$0" "$@"';
  const { promise, resolve } = Promise.withResolvers<{ readonly stdout: string; readonly code: unknown }>();
  execFile(
    "sh",
    ["-c", command, process.execPath, main],
    {
      env: {
        PATH: process.env.PATH,
        HOST: "127.0.0.1",
        PORT: "0",
        BATCH_STORE: "none",
        MODEL: whole,
        DTYPE: "int8",
        CACHE_FOLDER: join(temporary.path, "full"),
      },
    },
    (error, stdout) => resolve({ stdout, code: error?.code }),
  );
  const { stdout, code } = await promise;
  expect(code).toBe(1);
  expect(errorLineOf(stdout)).toMatchObject({
    code: "invalid_configuration",
    reason: expect.stringMatching(
      /^The cache folder cannot store \d+ bytes of prepared weights \(EFBIG: file too large\)\.$/,
    ),
  });
});

test("check gives the reason and the advice on one line", async () => {
  const folder = await copyOfCheckpoint("for check");
  await writeFile(join(folder, "tokenizer.json"), "{}");
  await using cli = startCli(["check"], { MODEL: folder, CACHE_FOLDER: join(temporary.path, "cache") });
  expect(await cli.exitCode).toBe(1);
  expect(cli.stderr()).toBe(
    `fovea: The model ${folder} cannot be served: tokenizer.json of the checkpoint: model is missing; expected an object. ` +
      "Correct the file that the reason names, or download the checkpoint again.\n",
  );
});
