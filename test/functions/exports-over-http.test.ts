/** Ready-made exports as users start them: the service and `check` with settings. */
import { join } from "node:path";
import { expect, test } from "vitest";

import { loadTokenizer } from "../../engine/text/tokenizer.ts";
import { goldensFolder, loadGoldens, pictureReference } from "../support/checkpoints/goldens.ts";
import { startCli } from "../support/service/cli-process.ts";
import { startService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const folderOf = (name: "llava" | "smolvlm"): string => join(goldensFolder, "onnx-exports", name);

test("a conversation with a picture is answered over HTTP with the tokens of transformers", async () => {
  await using cache = await createTemporaryFolder();
  await using service = await startService({ MODEL: folderOf("llava"), CACHE_FOLDER: cache.path });
  const golden = (await loadGoldens("onnx-exports/llava")).cases.find(({ name }) => name === "one")!;
  const image = { type: "image_url", image_url: { url: await pictureReference(golden.pictures[0]!) } };
  const messages = golden.messages.map(({ role, content }) => ({
    role,
    content: content.map((part) => (part.type === "image" ? image : part)),
  }));
  const numTokens = golden.greedyTokenIds.length;
  const fields = { temperature: 0, max_tokens: numTokens, ignore_eos: true, skip_special_tokens: false };
  const ask = async (): Promise<unknown> => {
    const response = await fetch(`${service.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ messages, ...fields }),
    });
    return response.json();
  };
  const tokenizer = await loadTokenizer(folderOf("llava"));
  const content = tokenizer.decode(golden.greedyTokenIds);
  const expected = {
    choices: [{ message: { content }, finish_reason: "length" }],
    usage: { prompt_tokens: golden.promptTokenIds.length, completion_tokens: numTokens },
  };
  expect(await ask()).toMatchObject(expected);
  // With the state that the first one left behind, including its picture's embeddings.
  expect(await ask()).toMatchObject(expected);
});

test("check shows the variant, the sizes of its files and room for one more sequence", async () => {
  await using cache = await createTemporaryFolder();
  await using cli = startCli(["check"], {
    MODEL: folderOf("llava"),
    DTYPE: "int4",
    MAX_NUM_SEQS: "3",
    CACHE_FOLDER: cache.path,
  });
  expect(await cli.exitCode).toBe(0);
  const report = cli.stdout();
  expect(report).toMatch(/^ {2}architecture +LlavaForConditionalGeneration$/m);
  expect(report).toMatch(/^ {2}dtype +int4/m);
  expect(report).toMatch(/^ {2}weights, decoder +30\.5 KiB$/m);
  // 2 * 2 layers * 2 heads * 8 numbers * 4 bytes, 512 times, 3 + 1 times.
  expect(report).toMatch(/^ {2}KV cache +512\.0 KiB /m);
  expect(report).toMatch(/^Fits: /m);
});

test("check lists the variants of an export that lacks the requested one", async () => {
  await using cache = await createTemporaryFolder();
  await using cli = startCli(["check"], { MODEL: folderOf("smolvlm"), DTYPE: "int8", CACHE_FOLDER: cache.path });
  expect(await cli.exitCode).toBe(1);
  expect(cli.stderr()).toContain(
    "There are: decoder_model_merged.onnx (float32), decoder_model_merged_fp16.onnx (float16).",
  );
});
