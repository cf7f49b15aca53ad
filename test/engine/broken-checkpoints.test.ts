/**
 * Files of a checkpoint, each broken in each way: rejected at once, with a sentence that names the file, never with a
 * stack trace.
 */
import { execFileSync } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { EngineError } from "../../engine/contract/errors.ts";
import { loadModel } from "../../engine/loading/load-model.ts";
import { goldensFolder } from "../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

let temporary: TemporaryFolder;
let numFolders = 0;

beforeAll(async () => {
  temporary = await createTemporaryFolder();
});

afterAll(() => temporary[Symbol.asyncDispose]());

type Break = (file: string) => unknown;

/** Loads a copy of a checkpoint with one broken file. Returns the error, or null if it loads anyway. */
async function load(golden: string, file: string, breakFile: Break): Promise<unknown> {
  const folder = join(temporary.path, `${(numFolders += 1)}`);
  await mkdir(folder);
  for (const name of await readdir(join(goldensFolder, golden))) {
    if (/\.(json|jinja|safetensors)$/.test(name) && !name.startsWith("goldens")) {
      await cp(join(goldensFolder, golden, name), join(folder, name));
    }
  }
  await breakFile(join(folder, file));
  const config = { ...goldenEngineConfig("", join(temporary.path, "cache")), model: folder };
  try {
    await using _ = await loadModel(config, { imageSources: [] }, new AbortController().signal);
    return null;
  } catch (error) {
    return error;
  } finally {
    await rm(folder, { recursive: true });
  }
}

const holding =
  (text: string): Break =>
  (file) =>
    writeFile(file, text);
const asPipe: Break = async (file) => {
  await rm(file, { force: true });
  execFileSync("mkfifo", [file]);
};
const asFolder: Break = async (file) => {
  await rm(file, { force: true });
  await mkdir(file);
};

const texts = ["", "{", "\u0000", "hello", "[".repeat(100_000)];
const noObjects = ["[]", "3", '"x"', `${"[".repeat(5000)}${"]".repeat(5000)}`];

const checkpoints: Readonly<Record<string, readonly string[]>> = {
  llama: ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"],
  "llava-full": ["preprocessor_config.json"],
  smolvlm: ["processor_config.json"],
};

const files = Object.entries(checkpoints).flatMap(([golden, names]) => names.map((name) => ({ golden, name })));

test.for(files)(
  "$name that is broken, not an object, a pipe or a folder is reported by name",
  async ({ golden, name }) => {
    const breaks = [...[...texts, ...noObjects].map(holding), asPipe, asFolder];
    for (const [index, breakFile] of breaks.entries()) {
      const error = await load(golden, name, breakFile);
      const about = `${name}, broken in way ${index}`;
      // A processor_config.json without an image processor is valid.
      if (name === "processor_config.json" && index >= texts.length && index < breaks.length - 2) continue;
      expect({ about, error }).toEqual({ about, error: expect.any(EngineError) as unknown });
      const { code, message } = error as EngineError;
      expect({ about, code }).toEqual({ about, code: "invalid_checkpoint" });
      expect(message).toContain(name);
      expect(message).toMatch(/^[^\n]{1,400}\.$/);
    }
  },
);

test("an image processor in processor_config.json comes before one in preprocessor_config.json", async () => {
  const processor = { image_processor: { image_processor_type: "OtherImageProcessor" } };
  expect(await load("llava-full", "processor_config.json", holding(JSON.stringify(processor)))).toMatchObject({
    code: "unsupported_model",
    message: expect.stringMatching(/^processor_config\.json: .*"OtherImageProcessor"/),
  });
  const none = JSON.stringify({ image_processor: null });
  expect(await load("llava-full", "processor_config.json", holding(none))).toBeNull();
  expect(await load("llava-full", "processor_config.json", holding("{}"))).toBeNull();
});

test("a chat template that is not Jinja, a pipe or a folder is rejected with the reason", async () => {
  for (const breakFile of [holding("{% for message in %}"), holding("{{"), holding("{% endfor %}")]) {
    const error = await load("llama", "chat_template.jinja", breakFile);
    expect(error).toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringMatching(
        /^The chat template of the checkpoint \(chat_template\.jinja\) is not valid Jinja \([^\n]+\)\.$/,
      ),
    });
  }
  for (const breakFile of [asPipe, asFolder]) {
    const error = await load("llama", "chat_template.jinja", breakFile);
    expect(error).toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringMatching(/^chat_template\.jinja is a (named pipe|folder), not a file\.$/),
    });
  }
});

const edit =
  (change: (json: Record<string, never>) => unknown): Break =>
  async (file) => {
    const json = JSON.parse(await readFile(file, "utf8")) as Record<string, never>;
    await writeFile(file, JSON.stringify(change(json)));
  };

test.for<[file: string, change: (json: Record<string, never>) => unknown, message: string]>([
  [
    "config.json",
    () => ({}),
    'config.json: architectures is missing; expected a list with the name of the model\'s class, such as ["LlamaForCausalLM"].',
  ],
  [
    "config.json",
    (json) => ({ ...json, num_hidden_layers: 1e9 }),
    "config.json: num_hidden_layers is 1000000000; expected at most 1024.",
  ],
  [
    "config.json",
    (json) => ({ ...json, num_hidden_layers: 12 }),
    "The checkpoint has no tensor model.layers.3.input_layernorm.weight, which config.json requires.",
  ],
  [
    "config.json",
    (json) => ({ ...json, vocab_size: 332 }),
    "Tensor model.embed_tokens.weight has shape [331, 51]; config.json implies [332, 51].",
  ],
  ["tokenizer.json", () => ({}), "tokenizer.json of the checkpoint: model is missing; expected an object."],
  [
    "tokenizer.json",
    (json) => ({ ...json, added_tokens: [{ id: "3" }] }),
    'tokenizer.json of the checkpoint: added_tokens[0].id is "3"; expected a number.',
  ],
  [
    "tokenizer_config.json",
    (json) => ({ ...json, add_bos_token: "yes" }),
    'tokenizer_config.json of the checkpoint: add_bos_token is "yes"; expected true or false.',
  ],
  [
    "generation_config.json",
    (json) => ({ ...json, temperature: "hot" }),
    'generation_config.json of the checkpoint: temperature is "hot"; expected a number.',
  ],
])("%s with a wrong field: $2", async ([file, change, message]) => {
  expect(await load("llama", file, edit(change))).toMatchObject({ message });
});
