import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { deploymentTargets } from "../../../infra/targets.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const example = fileURLToPath(new URL("../../../examples/deployments/llava.yaml", import.meta.url));

async function render(args: readonly string[], input = "", environment: Readonly<Record<string, string>> = {}) {
  await using cli = startCli(["render", ...args], environment, input);
  const exitCode = await cli.exitCode;
  return { exitCode, stdout: cli.stdout(), stderr: cli.stderr() };
}

/** Examples for platforms that do not have all that the first example asks for; they name the field. */
const ownExamples: Readonly<Record<string, string>> = {
  "inference-pool": "shapes",
  "kserve-llm": "answers-kserve",
  "vertex-ai": "answers",
  sagemaker: "answers-sagemaker",
  ecs: "worker",
  "azure-container-apps": "answers-azure",
  "hugging-face": "answers-hugging-face",
};

test("--help names every platform, and each renders an example, whatever the environment", async () => {
  const { stdout: help } = await render(["--help"]);
  for (const { name } of deploymentTargets) {
    expect(help).toMatch(new RegExp(`--platform NAME .*\\b${name}\\b`));
    const own = ownExamples[name];
    const file = own === undefined ? example : example.replace("llava.yaml", `${own}.yaml`);
    const rendered = await render(["--platform", name, "--deployment", file], "", { PORT: "no port" });
    expect(rendered).toMatchObject({ exitCode: 0, stderr: "" });
    expect(rendered.stdout).toMatch(/\/fovea(?:-llava)?:0\.1\.0/);
  }
});

test("a folder below one that rejects new folders ends the command with the reason", async () => {
  const { exitCode, stderr } = await render(["--platform", "runpod", "--deployment", example, "--output", "/proc/x/y"]);
  expect({ exitCode, stderr }).toEqual({
    exitCode: 2,
    stderr: "fovea: --output /proc/x/y cannot be written: ENOENT: no such file or directory, mkdir '/proc/x'.\n",
  });
});

test("--output writes the content of standard output into a folder, one file each", async () => {
  await using folder = await createTemporaryFolder();
  const output = join(folder.path, "manifests");
  const args = ["--platform", "kubernetes", "--deployment", example];
  const { exitCode, stdout, stderr } = await render([...args, "--output", output]);
  expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: "" });
  const names = await readdir(output);
  expect(names.toSorted()).toEqual([
    "deployment.yaml",
    "disruption-budget.yaml",
    "route.yaml",
    "scaling.yaml",
    "service.yaml",
  ]);
  const texts = await Promise.all(names.map((name) => readFile(join(output, name), "utf8")));
  const all = (await render(args)).stdout;
  for (const text of texts) expect(all).toContain(text);
  for (const name of names) expect(stderr).toContain(`fovea: Wrote ${join(output, name)}.\n`);
});

test("an invalid deployment from standard input exits with 2, lists every problem, and writes nothing", async () => {
  await using folder = await createTemporaryFolder();
  const output = join(folder.path, "manifests");
  const deployment = (await readFile(example, "utf8"))
    .replace("MAX_MODEL_LEN", "MAX_MODEL_LENGHT")
    .replace("gpu: l4", "gpu: l5");
  const rendered = await render(["--platform", "runpod", "--deployment", "-", "--output", output], deployment);
  expect(rendered).toMatchObject({ exitCode: 2, stdout: "" });
  expect(rendered.stderr).toMatch(/^fovea: device\.gpu: expected one of .*\bl4\b.*, got "l5"\.$/m);
  expect(await readdir(folder.path)).toEqual([]);
});

test.for([
  ["kafka://host/topic", "JOB_SOURCE starts with kafka://; expected one of "],
  ["redis://host", "JOB_SOURCE names no queue: "],
  ["sqs", "JOB_SOURCE names no queue: "],
  ["nats://host/stream", "JOB_SOURCE names no stream and consumer: "],
])("a queue that the service would reject is rejected with its reason: %s", async ([source, reason]) => {
  const deployment = (await readFile(example, "utf8")).replace("environment:\n", `$&  JOB_SOURCE: ${source}\n`);
  const rendered = await render(["--platform", "kubernetes", "--deployment", "-"], deployment);
  expect(rendered).toMatchObject({ exitCode: 2, stdout: "" });
  expect(rendered.stderr).toContain(`fovea: environment.JOB_SOURCE: ${reason}`);
});

test.for<[string[], RegExp]>([
  [["--deployment", example], /render needs --platform: the name of one; fovea render --help lists them\./],
  [
    ["--platform", "fargate", "--deployment", example],
    /There is no platform fargate; platforms: .*\bkubernetes\b.*\bcloud-run\b/,
  ],
  [["--platform", "runpod"], /render needs --deployment: a YAML file, or - for standard input\./],
  [["--platform", "runpod", "--deployment", "/nowhere.yaml"], /--deployment \/nowhere\.yaml cannot be read: ENOENT/],
  [
    ["--platform", "runpod", "--deployment", example, "--max-num-seqs", "4"],
    /--max-num-seqs is a setting; render reads settings from the deployment\./,
  ],
  [["--platform", "runpod", "--deployment", example, "--output", ""], /--output is empty\./],
  [["--platform", "runpod", "--deployment", ""], /--deployment is empty\./],
  [["--platform", "runpod", "--deployment", example, "--json"], /--json is an option of check, not of render\./],
])("%j exits with 2", async ([args, expected]) => {
  const { exitCode, stderr } = await render(args);
  expect(exitCode).toBe(2);
  expect(stderr).toMatch(expected);
});
