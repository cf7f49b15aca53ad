/** Requests choose LoRA adapters by the name of the model. */
import { expect, test } from "vitest";

import {
  chosenAdapter,
  chosenAdapters,
  chosenCases,
  hubCases,
  writeHubCheckpoint,
  type HubCase,
} from "../../support/checkpoints/hub-checkpoints.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { startReadyCli } from "../../support/service/ready-cli.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const adapters = chosenAdapters.names.map((name) => ({ name, path: chosenAdapter(name) }));

test("an adapter answers under its name, and the model under its own", async () => {
  await using folder = await createTemporaryFolder();
  await using cacheFolder = await createTemporaryFolder();
  await writeHubCheckpoint(chosenAdapters.model, "v5", folder.path);
  await using service = await startReadyCli({
    MODEL: folder.path,
    SERVED_MODEL_NAME: "base,alias",
    LORA_MODULES: JSON.stringify(adapters),
    DTYPE: "float32",
    CACHE_FOLDER: cacheFolder.path,
  });
  const models = (await (await fetch(`${service.baseUrl}/v1/models`)).json()) as { data: readonly object[] };
  expect(models.data).toMatchObject([
    { id: "base", parent: null },
    { id: "alias", parent: null },
    { id: "all", parent: "base" },
    { id: "some", parent: "base" },
  ]);

  const complete = async (model: string, prompt: readonly number[]) => {
    const response = await fetch(`${service.baseUrl}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, prompt, temperature: 0, max_tokens: 32, ignore_eos: true }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  // Without pictures, so that the tokens are the whole prompt.
  const textCases = (cases: readonly HubCase[], model: string) =>
    cases.filter(({ pictures }) => pictures.length === 0).map((golden) => ({ golden, model }));
  const asked = [
    ...textCases(hubCases(chosenAdapters.model), "alias"),
    ...chosenAdapters.names.flatMap((name) => textCases(chosenCases(name), name)),
  ];
  expect(new Set(asked.map(({ model }) => model)).size).toBe(3);
  const answers = await Promise.all(asked.map(({ model, golden }) => complete(model, golden.promptTokenIds)));
  answers.forEach(({ status, body }, index) => {
    const { model, golden } = asked[index]!;
    expect({ status, body }).toMatchObject({ status: 200, body: { model, choices: [{ text: golden.answer }] } });
  });

  const asking = complete("some", [1, 2, 3, 4, 5]);
  const scrape = async (): Promise<string> => {
    const metrics = await (await fetch(`${service.baseUrl}/metrics`)).text();
    return /^vllm:lora_requests_info\{(.*)\} \d/m.exec(metrics)?.[1] ?? "none";
  };
  expect(await scrape()).toMatch(/max_lora="2",running_lora_adapters="(some)?",waiting_lora_adapters="(some)?"/);
  await asking;

  const unknown = await complete("none", [1, 2, 3]);
  expect(unknown).toMatchObject({ status: 404, body: { error: { code: "model_not_found", param: "model" } } });
});

test("the check lists adapters and their memory, and names one that does not fit", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(chosenAdapters.model, "v5", folder.path);
  const check = async (modules: string) => {
    await using cli = startCli(["check"], { MODEL: folder.path, LORA_MODULES: modules });
    const exitCode = await cli.exitCode;
    return { exitCode, stdout: cli.stdout(), stderr: cli.stderr() };
  };
  const [listed, wrong] = await Promise.all([
    check(adapters.map(({ name, path }) => `${name}=${path}`).join(",")),
    check("mine=test/fixtures/adapters/llava-1.5"),
  ]);
  expect(listed.stdout).toMatch(/^ {2}LoRA modules +all +rank 4$/m);
  expect(listed.stdout).toMatch(/^ +some +rank 6$/m);
  expect(listed.stdout).toMatch(/^ {4}LoRA modules +[\d.]+ KiB +part of it$/m);
  expect(wrong.exitCode).not.toBe(0);
  expect(wrong.stderr).toMatch(/The LoRA adapter mine does not fit\. .* Set LORA_MODULES to adapters of the model/);
});
