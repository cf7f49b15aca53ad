import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { inspectCheckpoint } from "../../../engine/inspection/inspect-checkpoint.ts";
import { numUsableCores } from "../../../engine/runtime/usable-cores.ts";
import { formatReport, gpuLine } from "../../../functions/cli/check-report.ts";
import { loadConfig } from "../../../functions/settings/config.ts";
import { loraAdapter, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { writeVisionCheckpoint } from "../../support/checkpoints/quantised-checkpoints.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

interface Report {
  readonly ok: boolean;
  readonly fit: string;
  readonly memory: { readonly totalBytes: number; readonly kvCache: Readonly<Record<string, number>> };
  readonly logitsProcessors: readonly { readonly name: string; readonly error: string | null }[];
  readonly measured: readonly {
    readonly name: string;
    readonly computedBytes: number;
    readonly measuredBytes: number;
  }[];
}

async function check(args: readonly string[] = [], environment: Readonly<Record<string, string>> = {}) {
  await using cli = startCli(["check", ...args], environment);
  const exitCode = await cli.exitCode;
  return { exitCode, stdout: cli.stdout(), stderr: cli.stderr() };
}

async function checkJson(args: readonly string[] = [], environment: Readonly<Record<string, string>> = {}) {
  const { exitCode, stdout } = await check(["--json", ...args], environment);
  return { exitCode, report: JSON.parse(stdout) as Report };
}

const steering = "./examples/steering/target-token.ts:TargetToken";

test("the report says how a checkpoint is quantised, and that prompts have weights of their own", async () => {
  await using folder = await createTemporaryFolder();
  await writeVisionCheckpoint(folder.path);
  const environment = { MODEL: folder.path, MAX_NUM_SEQS: "1", MAX_MODEL_LEN: "256" };
  const [stored, widened] = await Promise.all([
    check([], environment),
    check([], { ...environment, PROMPT_DTYPE: "int8" }),
  ]);
  for (const { exitCode, stdout } of [stored, widened]) {
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/^ {2}quantised by +awq, 4 bits in groups of 32$/m);
  }
  expect(stored.stdout).not.toMatch(/^ {2}prompts /m);
  expect(widened.stdout).toMatch(/^ {2}prompts +int8 +weights beside the others; PROMPT_DTYPE$/m);
});

test("the report shows the model, its memory by part, and that it fits", async () => {
  const { exitCode, stdout, stderr } = await check([], { MAX_NUM_SEQS: "4", MAX_MODEL_LEN: "1024" });
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  expect(stdout).toMatch(/^ {2}architecture +LlavaForConditionalGeneration$/m);
  expect(stdout).toMatch(/^ {2}dtype +float32 +chosen by DTYPE=auto$/m);
  expect(stdout).toMatch(/^ {2}content hash +[0-9a-f]{16}$/m);
  // 2 * 4 layers * 2 heads * 32 numbers * 4 bytes, 1024 times, 4 times.
  expect(stdout).toMatch(/^ {4}per token +2\.0 KiB$/m);
  expect(stdout).toMatch(/^ {4}per sequence +2\.0 MiB$/m);
  expect(stdout).toMatch(/^ {2}KV cache +8\.0 MiB +reserved for 4 sequences/m);
  expect(stdout).toMatch(/^ {2}largest +64 x 64 /m);
  expect(stdout).toMatch(/^ {2}images that fit +15 +into 1024 tokens/m);
  expect(stdout).toMatch(/^ {2}videos per prompt +1 +with up to 32 frames each; MAX_VIDEO_FRAMES$/m);
  expect(stdout).toMatch(/^Fits: /m);
});

test("the report shows the memory of experts, and the part that a token reads", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint("qwen3-moe", "v4", folder.path);
  const { stdout } = await check([], { MODEL: folder.path, MAX_NUM_SEQS: "1", MAX_MODEL_LEN: "256" });
  // 2 layers of 6 experts with 3 * 64 * 40 weights of 4 bytes; a third of them.
  expect(stdout).toMatch(/^ {4}experts +360\.0 KiB +part of it; a token reads 120\.0 KiB$/m);
});

test("the verdict says that no image of the largest size fits", async () => {
  const { exitCode, stdout } = await check([], { MAX_MODEL_LEN: "32" });
  expect(exitCode).toBe(0);
  expect(stdout).toMatch(
    /^No image of the largest size fits: it takes 64 tokens beside the chat template and the answer, and a sequence has 32\. Raise MAX_MODEL_LEN; /m,
  );
  const ofText = await check([], { MAX_MODEL_LEN: "32", LIMIT_MM_PER_PROMPT: '{"image": 0}' });
  expect(ofText.stdout).toContain("the model or LIMIT_MM_PER_PROMPT accepts none");
  expect(ofText.stdout).not.toContain("vision encoder");
  expect(ofText.stdout).not.toContain("No image of the largest size fits");
  const ofVideos = await check([], { LIMIT_MM_PER_PROMPT: '{"image": 0, "video": 1}' });
  expect(ofVideos.stdout).toContain("vision encoder");
});

test("with DEVICE=cuda the report says which GPU this machine has, or what it lacks", async () => {
  const environment = { DEVICE: "cuda", MAX_NUM_SEQS: "1", MAX_MODEL_LEN: "256" };
  const { stdout, stderr } = await check([], environment);
  expect(stdout, stderr).toMatch(/^ {2}device +cuda$/m);
  expect(stdout).toMatch(
    /^ {2}GPU of this machine +(none +\S.*\.|.*, [\d.]+ [GT]iB +compute capability \d+\.\d, driver for CUDA \d+\.\d)$/m,
  );
  expect((await check([])).stdout).not.toContain("GPU of this machine");
});

test("a GPU is described by its name, memory, generation and driver", () => {
  const device = {
    name: "NVIDIA L4",
    memoryBytes: 24 * 1024 ** 3,
    computeCapability: "8.9",
    driverCudaVersion: "13.0",
    numDevices: 1,
  };
  expect(gpuLine({ kind: "usable", device })).toEqual([
    "GPU of this machine",
    "NVIDIA L4, 24.0 GiB",
    "compute capability 8.9, driver for CUDA 13.0",
  ]);
});

test("slots that share memory show the tokens that fit at once, and all of MAX_NUM_SEQS", async () => {
  const environment = { MAX_NUM_SEQS: "32", MAX_MODEL_LEN: "1024", KV_CACHE_MEMORY_BYTES: "8MiB" };
  const { exitCode, stdout } = await check([], environment);
  expect(exitCode).toBe(0);
  // A block is a page of 32 tokens for keys and values of 2 heads of 4 layers: 64 KiB.
  expect(stdout).toMatch(
    /^ {2}KV cache +8\.0 MiB +128 blocks of 32 tokens: 4096 tokens at once; sequences share them$/m,
  );
  expect(stdout).not.toContain("no room for more");
  const more = await check([], { ...environment, MAX_NUM_SEQS: "200" });
  // 128 blocks, of which one sequence of full length takes 32.
  expect(more.stdout).toMatch(/^ +no room for more; MAX_NUM_SEQS=200$/m);
});

test("copies of the model divide the memory of the machine", async () => {
  const machine = (report: string): number => Number(/^ {2}machine +([\d.]+) GiB/m.exec(report)![1]);
  const whole = await check([], {});
  const divided = await check([], { DATA_PARALLEL_SIZE: "2" });
  expect(divided.stdout).toMatch(/^Memory of each of 2 copies \(DATA_PARALLEL_SIZE\)$/m);
  expect(divided.stdout).toMatch(/^ {2}machine .* share of a copy$/m);
  expect(machine(divided.stdout) / machine(whole.stdout)).toBeCloseTo(0.5, 1);
});

test.runIf(numUsableCores() >= 2)("the two copies that are the default on two cores have a line", async () => {
  const usual = await checkJson([], { NUM_THREADS: "2" });
  expect(usual.report).toMatchObject({ numCopies: 2 });
  const { stdout } = await check([], { NUM_THREADS: "2" });
  expect(stdout).toMatch(/^ {2}second copy +[\d.]+ MiB +computes half of the sequences; DATA_PARALLEL_SIZE$/m);
  expect(stdout).toMatch(/^ {2}KV cache .* reserved for 32 sequences/m);
  const single = await check([], { NUM_THREADS: "2", DATA_PARALLEL_SIZE: "1" });
  expect(single.stdout).not.toContain("second copy");
});

test.runIf(numUsableCores() >= 2)("where only a second copy does not fit, the advice is to do without it", async () => {
  const config = loadConfig({ NUM_THREADS: "2" });
  const inspection = await inspectCheckpoint(config.engine, {}, new AbortController().signal);
  const { totalBytes, furtherCopyBytes } = inspection.memory;
  const report = { config, gpu: null, remoteSettings: [], isRunWanted: false, measured: null };
  const advice = (machineBytes: number): string =>
    formatReport({ ...report, inspection: { ...inspection, machineBytes }, fit: "does not fit" });
  expect(advice(totalBytes - 1)).toContain("It fits with DATA_PARALLEL_SIZE=1 or MAX_NUM_SEQS=31 or MAX_MODEL_LEN=");
  expect(advice(totalBytes - furtherCopyBytes - 1)).not.toContain("DATA_PARALLEL_SIZE=1");
});

test("a RunPod worker can be checked on another machine", async () => {
  expect((await check([], { JOB_SOURCE: "runpod" })).exitCode).toBe(0);
});

test("settings that cannot fit exit with 1", async () => {
  const tooMuch = await check(["--run"], { MM_PROCESSOR_CACHE_GB: "1024" });
  expect(tooMuch.exitCode).toBe(1);
  expect(tooMuch.stdout).toMatch(/^DOES NOT FIT: 1\.0 TiB with every sequence at its longest; the machine has /m);
  expect(tooMuch.stdout).toContain(
    "It does not fit even without the KV cache: processed images in the cache take 1.0 TiB. Lower MM_PROCESSOR_CACHE_GB, or use a larger machine.",
  );
  expect(tooMuch.stdout).toContain("The dummy run was skipped.");
});

test("logits processors are loaded; one that does not load is named with the reason and exits with 2", async () => {
  const good = await checkJson([], { LOGITS_PROCESSORS: steering });
  expect(good).toMatchObject({
    exitCode: 0,
    report: { ok: true, logitsProcessors: [{ name: steering, error: null }] },
  });
  const bad = await check([], { LOGITS_PROCESSORS: `${steering},nowhere.at_all:Missing` });
  expect(bad.exitCode).toBe(2);
  expect(bad.stdout).toContain(`  ${steering}  loads\n`);
  expect(bad.stdout).toMatch(/^ {2}nowhere\.at_all:Missing +does not load: .*nowhere/m);
  expect(bad.stdout).toContain("WILL NOT START: 1 of 2 logits processors do not load.");
});

test("secrets of S3 and Redis are masked in the table and in JSON", async () => {
  const environment = {
    REDIS_URL: "redis://user:hunter2@redis:6379",
    AWS_SECRET_ACCESS_KEY: "hunter3",
    AWS_ENDPOINT_URL_S3: "http://user:hunter4@minio:9000",
  };
  const table = await check([], environment);
  expect(table.stdout).toMatch(/^ {2}REDIS_URL +\*{8} +environment$/m);
  expect(table.stdout).toMatch(/^ {2}AWS_ENDPOINT_URL_S3 +http:\/\/\*{8}@minio:9000 /m);
  expect(table.stdout).not.toContain("hunter");
  const { report } = await checkJson([], environment);
  expect(JSON.stringify(report)).not.toContain("hunter");
});

test.for<[string, Record<string, string>, number, RegExp]>([
  ["a setting that does not parse", { MAX_NUM_SEQS: "many" }, 2, /MAX_NUM_SEQS is "many"/],
  ["a model that is not there", { MODEL: "/nowhere/at/all" }, 1, /\/nowhere\/at\/all cannot be served/],
  ["a length beyond the checkpoint's", { MAX_MODEL_LEN: "9999" }, 1, /9999 tokens; the checkpoint's limit is 2048/],
  [
    "a format of calls that is not there",
    { TOOL_CALL_PARSER: "hermes9" },
    2,
    /TOOL_CALL_PARSER is "hermes9": expected hermes/,
  ],
  [
    "a module of parsers that is not there",
    { REASONING_PARSER: "nowhere:Format" },
    2,
    /REASONING_PARSER: nowhere:Format could not/,
  ],
  ["a queue of an unknown kind", { JOB_SOURCE: "kafka://host/topic" }, 2, /JOB_SOURCE starts with kafka:\/\//],
  ["a dtype that the device lacks", { DTYPE: "float16" }, 1, /float16 is not for cpu/],
])("%s is reported on stderr", async ([, environment, expectedCode, expected]) => {
  const { exitCode, stdout, stderr } = await check([], environment);
  expect({ exitCode, stdout }).toEqual({ exitCode: expectedCode, stdout: "" });
  expect(stderr).toMatch(expected);
});

test("--run fills the engine, and measured values are close to computed ones", async () => {
  const { exitCode, report } = await checkJson(["--run"], {
    MAX_NUM_SEQS: "4",
    MAX_MODEL_LEN: "512",
    MAX_NUM_BATCHED_TOKENS: "256",
  });
  expect(exitCode).toBe(0);
  const together = report.measured.at(-1)!;
  expect(together.name).toBe("together");
  // Resident memory depends on the system and its garbage collector: a factor of two either way is allowed.
  expect(together.measuredBytes).toBeGreaterThan(together.computedBytes / 2);
  expect(together.measuredBytes).toBeLessThan(together.computedBytes * 2);
});

test("the report shows the types of the vision part, and refuses those that the device lacks", async () => {
  const settings = { MAX_NUM_SEQS: "4", MAX_MODEL_LEN: "1024" };
  const { exitCode, stdout } = await check([], { ...settings, VISION_DTYPE: "int8", PROJECTOR_DTYPE: "float32" });
  expect(exitCode).toBe(0);
  expect(stdout).toMatch(/^ {2}vision tower +int8 on cpu$/m);
  expect(stdout).toMatch(/^ {2}projector +float32 on cpu$/m);
  const refused = await check([], { ...settings, VISION_DTYPE: "float16" });
  expect(refused.exitCode).not.toBe(0);
  expect(refused.stderr).toMatch(/vision tower cannot be float16 on cpu\. Set its dtype to one of float32, int8\./);
  const apart = await check([], { ...settings, PROJECTOR_DEVICE: "cuda" });
  expect(apart.stderr).toMatch(/projector cannot be on cuda with the vision tower on cpu/);
});

test("an adapter is shown with its size, and one of another model is refused", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint("qwen2.5", "v5", folder.path);
  const adapted = await check([], { MODEL: folder.path, LORA_ADAPTER: loraAdapter("qwen2.5") });
  expect(adapted.stdout).toMatch(/adapter +LoRA of rank 8, 6 matrices, 4 whole tensors/);
  const other = await check([], { MODEL: folder.path, LORA_ADAPTER: loraAdapter("llava-1.5") });
  expect(other.exitCode).not.toBe(0);
  expect(other.stderr).toMatch(
    /LoRA adapter does not fit\. .* does not go with model\.layers\.0\..* Set LORA_ADAPTER to/,
  );
});

test("an unknown pipeline is refused with a list of those that there are", async () => {
  const model = fileURLToPath(new URL("../../fixtures/goldens/minigpt4/llama", import.meta.url));
  const { exitCode, stderr } = await check([], { MODEL: model, MULTIMODAL_PIPELINE: "blip3" });
  expect(exitCode).not.toBe(0);
  expect(stderr).toMatch(/no pipeline "blip3"; available are llava-v1\.5-7b, .*minigpt4-13b/);
});
