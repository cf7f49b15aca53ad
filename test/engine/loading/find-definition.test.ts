/** Definitions of models outside the repository: found, preferred, rejected. */
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";

import { findDefinition } from "../../../engine/loading/find-definition.ts";
import { llamaDefinition } from "../../../engine/models/llama/definition.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { answer, startEngine } from "../pipelines/pipeline-engine.ts";

const architecture = "AcmeForConditionalGeneration";
const json = { architectures: [architecture] };

async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

const moduleWith = (name: string, served = architecture): string =>
  `export const ${name} = { architecture: "${served}", images: null, configure: () => "${name}" };`;

test("the definition of docs/vision-models.md serves a checkpoint of its architecture like the one that ships", async () => {
  await using folder = await createTemporaryFolder();
  const golden = join(goldensFolder, "llava-siglip");
  const model = join(folder.path, "acme-vl");
  await cp(golden, model, { recursive: true });
  const config = JSON.parse(await readFile(join(golden, "config.json"), "utf8"));
  await writeFile(join(model, "config.json"), JSON.stringify({ ...config, architectures: [architecture] }));
  const page = await readFile(new URL("../../../docs/vision-models.md", import.meta.url), "utf8");
  await writeFile(join(folder.path, "acme_vl.ts"), /^```ts acme_vl\.ts\n([^]*?)\n```$/m.exec(page)![1]!);

  const picture = await readFile(join(goldensFolder, "pictures/photo.png"), "base64");
  const content = [
    { type: "image", reference: `data:;base64,${picture}` },
    { type: "text", text: "What is it?" },
  ] as const;
  const prompt = { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true } as const;
  const settings = { modelDefinitions: ["acme_vl:acmeVl"], modelDefinitionPath: [folder.path] };
  const cacheFolder = join(folder.path, "cache");
  await using own = await startEngine({ ...goldenEngineConfig("llava-siglip", cacheFolder), ...settings, model });
  await using shipped = await startEngine(goldenEngineConfig("llava-siglip", cacheFolder));
  expect(own.modelInfo).toMatchObject({ architecture, acceptsImages: true });
  const { last: _, ...answered } = await answer(own, prompt);
  const { last: _shipped, ...expected } = await answer(shipped, prompt);
  expect(answered).toEqual(expected);
});

test("a definition spells images for a tokenizer and a template that know none", async () => {
  await using folder = await createTemporaryFolder();
  const model = join(folder.path, "acme-vl");
  await cp(join(goldensFolder, "llava-siglip"), model, { recursive: true });
  const shipped = new URL("../../../engine/models/llava/definition.ts", import.meta.url).href;
  await writeFile(
    join(folder.path, "own.mjs"),
    `import { llavaDefinition } from "${shipped}";
     export const own = { ...llavaDefinition, imageSpelling: { imageStart: "AB", imageEnd: "C", imagePlaceholder: "<pic>" } };`,
  );
  const settings = { modelDefinitions: ["own:own"], modelDefinitionPath: [folder.path] };
  const config = { ...goldenEngineConfig("llava-siglip", join(folder.path, "cache")), ...settings, model };
  await using engine = await startEngine(config);
  const content = [
    { type: "text", text: "x<pic>" },
    { type: "image", reference: `data:;base64,${await readFile(join(goldensFolder, "pictures/photo.png"), "base64")}` },
    { type: "text", text: "y" },
  ] as const;
  const prompt = { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true } as const;
  const { promptTokenIds } = await answer(engine, prompt);
  const text = await engine.detokenize(promptTokenIds);
  expect(text).toContain(`x<pic>AB${"<image>".repeat(36)}Cy`);
});

test("prompt updates that leave the placeholder of a picture in the prompt are named", async () => {
  await using folder = await createTemporaryFolder();
  const model = join(folder.path, "acme-vl");
  await cp(join(goldensFolder, "llava-siglip"), model, { recursive: true });
  const shipped = new URL("../../../engine/models/llava/definition.ts", import.meta.url).href;
  await writeFile(
    join(folder.path, "own.mjs"),
    `import { llavaDefinition } from "${shipped}";
     const elsewhere = (updates) => updates.map((update) => ({ ...update, mode: "insertion", target: { kind: "start" } }));
     export const own = { ...llavaDefinition, images: { ...llavaDefinition.images, createProcessor(...parts) {
       const processor = llavaDefinition.images.createProcessor(...parts);
       return { ...processor, promptUpdates: (...given) => elsewhere(processor.promptUpdates(...given)) };
     } } };`,
  );
  const settings = { modelDefinitions: ["own:own"], modelDefinitionPath: [folder.path] };
  const config = { ...goldenEngineConfig("llava-siglip", join(folder.path, "cache")), ...settings, model };
  await using engine = await startEngine(config);
  const picture = await readFile(join(goldensFolder, "pictures/photo.png"), "base64");
  const content = [{ type: "image", reference: `data:;base64,${picture}` }] as const;
  const prompt = { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true } as const;
  await expect(answer(engine, prompt)).rejects.toMatchObject({
    code: "invalid_argument",
    message:
      "The model's promptUpdates leave 1 image placeholders (<image>) in the prompt; each image has to replace one.",
  });
});

test("settings come before what ships, and packages serve only unknown architectures", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, {
    "own.ts": `${moduleWith("first", "OtherModel")}\n${moduleWith("second", "LlamaForCausalLM")}`,
    "node_modules/acme/package.json":
      '{"name": "acme", "type": "module", "fovea": {"models": {"other": "./m.js:other", "vl": "./m.js:vl"}}}',
    "node_modules/acme/m.js": `${moduleWith("other", "LlamaForCausalLM")}\n${moduleWith("vl")}`,
  });
  const settings = { modelDefinitionPath: [folder.path] };
  const llama = { architectures: ["LlamaForCausalLM"] };
  expect(await findDefinition(llama, settings)).toBe(llamaDefinition);
  const named = { ...settings, modelDefinitions: ["own:first", "own:second"] };
  expect((await findDefinition(llama, named)).configure({})).toBe("second");
  expect((await findDefinition(json, named)).configure({})).toBe("vl");
  await expect(findDefinition({ architectures: ["Nobody"] }, named)).rejects.toMatchObject({
    code: "unsupported_model",
    message: expect.stringMatching(/^The architecture Nobody is not supported; supported are: LlamaForCausalLM/),
  });
});

test("of definitions with one architecture, the one of the checkpoint's vision tower serves it", async () => {
  await using folder = await createTemporaryFolder();
  const tower = (name: string, towerType: string): string =>
    `${moduleWith(name)}\nexport const ${name}Tower = { ...${name}, towerType: "${towerType}" };`;
  await writeFiles(folder.path, {
    "own.mjs": [tower("first", "siglip"), tower("second", "clip")].join("\n"),
    "node_modules/acme/package.json":
      '{"name": "acme", "type": "module", "fovea": {"models": {"a": "./m.mjs:firstTower", "b": "./m.mjs:secondTower"}}}',
    "node_modules/acme/m.mjs": [tower("first", "siglip"), tower("second", "clip")].join("\n"),
  });
  const served = async (model_type: string, modelDefinitions: readonly string[]): Promise<unknown> => {
    const config = { ...json, vision_config: { model_type } };
    const settings = { modelDefinitions, modelDefinitionPath: [folder.path] };
    return (await findDefinition(config, settings)).configure({});
  };
  const names = ["own:firstTower", "own:secondTower"];
  expect(await served("clip", names)).toBe("second");
  expect(await served("siglip", names)).toBe("first");
  expect(await served("clip", [])).toBe("second");
  expect(await served("pixtral", [...names, "own:second"])).toBe("second");
  await expect(served("pixtral", names)).rejects.toThrow(/^The architecture AcmeForConditionalGeneration is not/);
});

test.for<[string, string, RegExp]>([
  [
    "without a colon",
    "own",
    /own could not be loaded: it has no colon; expected <module>:<export>, such as acme_vl:acmeVl\.$/,
  ],
  ["of a module that is not there", "nowhere:a", /nowhere:a could not be loaded: the module was not found; tried/],
  ["without its export", "own:missing", /own:missing could not be loaded: there is no export missing/],
  ["without an architecture", "own:nothing", /own:nothing has the architecture undefined; expected a text\./],
  ["without configure", "own:named", /own:named has no function configure\./],
  [
    "with half of its images",
    "own:half",
    /own:half has images without a function createProcessor; null is a text model\./,
  ],
  [
    "with a placeholder that is no text",
    "own:number",
    /own:number has the imagePlaceholder 5; expected a text that is not empty\./,
  ],
  [
    "with an empty placeholder",
    "own:empty",
    /own:empty has the imagePlaceholder ""; expected a text that is not empty\./,
  ],
  ["with a spelling that is a text", "own:pic", /own:pic has the imageSpelling "<pic>"; expected an object/],
  [
    "with a spelling without its placeholder",
    "own:unnamed",
    /own:unnamed has the imageSpelling\.imagePlaceholder undefined; expected a text that is not empty\./,
  ],
  [
    "with half of its spelling",
    "own:open",
    /own:open has the imageSpelling\.imageEnd undefined; expected a text, which/,
  ],
])("a definition %s is rejected by name", async ([, name, message]) => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, {
    "own.mjs": `export const nothing = {}; export const named = { architecture: "A" };
      export const number = { ...named, configure() {}, imagePlaceholder: 5 };
      export const empty = { ...number, imagePlaceholder: "" };
      const spelled = (imageSpelling) => ({ ...named, configure() {}, images: null, imageSpelling });
      export const pic = spelled("<pic>");
      export const unnamed = spelled({ imageStart: "", imageEnd: "" });
      export const open = spelled({ imagePlaceholder: "<pic>", imageStart: "[" });
      export const half = { architecture: "A", configure() {}, images: { createProcessingInfo() {} } };`,
  });
  const settings = { modelDefinitions: [name], modelDefinitionPath: [folder.path] };
  await expect(findDefinition(json, settings)).rejects.toMatchObject({
    code: "invalid_configuration",
    setting: "modelDefinitions",
    message: expect.stringMatching(message),
  });
});

test("a wrong announcement is named with its package", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, {
    "node_modules/acme/package.json": '{"name": "acme", "fovea": {"models": {"a": "b"}}}',
  });
  await expect(findDefinition(json, { modelDefinitionPath: [folder.path] })).rejects.toThrow(
    /package\.json of acme is announced wrongly/,
  );
});
