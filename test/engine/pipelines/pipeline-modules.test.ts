/** Where pipelines come from, and what happens to those that are broken. */
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";

import { listPipelines } from "../../../engine/index.ts";
import { openModel } from "../../../engine/loading/open-model.ts";
import type { ModelDefinition, ProcessorContext } from "../../../engine/models/model-definition.ts";
import { selectPipeline } from "../../../engine/pipelines/select-pipeline.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { collectWarnings } from "../../support/collected-warnings.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { miniGpt4Config, miniGpt4Params } from "./pipeline-engine.ts";

const shipped = ["llava-v1.5-7b", "llava-v1.5-13b", "minigpt4-7b", "minigpt4-13b"];

async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

const moduleWith = (name: string, pipeline = "null"): string =>
  `export const availablePipelines = ["${name}"];
   export const getPipeline = (name) => name === "${name}" ? ${pipeline} : null;
   export const getPipelineFromModelName = () => null;`;

/** The source of an object with every field; `fields` are sources too. */
function aPipeline(fields: Readonly<Record<string, string>>): string {
  const sources = {
    name: '"own"',
    imageStart: '""',
    imageEnd: '""',
    imagePlaceholder: '"<image>"',
    placeholderTokenId: "0",
    weights: '[{ path: "weights.safetensors" }]',
    preprocessorConfig: "{}",
    visionEncoder: "() => ({})",
    ...fields,
  };
  const lines = Object.entries(sources).map(([field, source]) => `${field}: ${source}`);
  return `({ ${lines.join(", ")} })`;
}

afterEach(() => void vi.useRealTimers());

test("two modules with the same pipeline end the start, with both files", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, {
    "a/pipelines.mjs": moduleWith("own"),
    "b/pipelines.mjs": moduleWith("own"),
    "c/pipelines.mjs": moduleWith("minigpt4-7b", aPipeline({ name: `"minigpt4-7b"` })),
  });
  const [a, b, c] = ["a", "b", "c"].map((name) => join(folder.path, name));
  await expect(selectPipeline({ model: "m", pipelinePath: [folder.path] })).rejects.toThrow(
    `Two modules have a pipeline "own": ${join(a!, "pipelines.mjs")} and ${join(b!, "pipelines.mjs")}. Rename one`,
  );
  // One that ships with Fovea is replaced.
  const replaced = { model: "m", multimodalPipeline: "minigpt4-7b", pipelinePath: [c!] };
  expect(await selectPipeline(replaced)).toMatchObject({ imagePlaceholder: "<image>" });
  // The same file, found twice.
  expect(await selectPipeline({ model: "m", pipelinePath: [a!, a!] })).toBeNull();
});

test("a module or a pipeline that never loads is no longer waited for after a minute", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, {
    "module/pipelines.mjs": "await new Promise(() => {});",
    "pipeline/pipelines.mjs": moduleWith("own", "new Promise(() => {})"),
  });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const passMinute = setInterval(() => void vi.advanceTimersByTime(60_000), 100);
  const path = ["module", "pipeline"].map((name) => join(folder.path, name));
  const reason = "it did not load within 60 seconds; it may await something that never happens";
  const { problems } = await listPipelines(path);
  expect(problems).toEqual([`The pipeline module ${path[0]} is left out: ${reason}.`]);
  await expect(selectPipeline({ model: "m", pipelinePath: path.slice(1), multimodalPipeline: "own" })).rejects.toThrow(
    `The pipeline own of ${path[1]} cannot be created: ${reason}.`,
  );
  clearInterval(passMinute);
});

test("modules come from folders, subfolders and packages, and broken ones are left out with the reason", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, {
    "own/pipelines.mjs": moduleWith("own"),
    "many/b/pipelines.ts": `const names: string[] = ["second"];\n${moduleWith("x").replace('["x"]', "names")}`,
    "many/a/pipelines.js": moduleWith("first"),
    "many/throws/pipelines.js": 'throw new Error("no luck");',
    "many/lacks/pipelines.js": 'export const availablePipelines = ["lacks"]; export const getPipeline = () => null;',
    "many/empty/readme.txt": "",
    "many/node_modules/acme/package.json": '{"name": "acme", "fovea": {"pipelines": "./lib/pipelines.js"}}',
    "many/node_modules/acme/lib/pipelines.js": moduleWith("packaged"),
    "many/node_modules/wrong/package.json": '{"name": "wrong", "fovea": {"pipelines": 5}}',
    "package.json": '{"type": "module"}',
  });
  const path = [join(folder.path, "own"), join(folder.path, "many"), join(folder.path, "missing")];
  const { pipelines, problems } = await listPipelines(path);
  expect(pipelines.map(({ name }) => name)).toEqual(["own", "first", "second", "packaged", ...shipped]);
  expect(pipelines.map(({ module }) => module).slice(0, 4)).toEqual([
    path[0],
    join(folder.path, "many/a"),
    join(folder.path, "many/b"),
    "acme",
  ]);
  expect(problems).toHaveLength(4);
  for (const problem of [
    /throws is left out: no luck/,
    /lacks is left out: it exports no function/,
    /missing/,
    /wrong/,
  ]) {
    expect(problems.join("\n")).toMatch(problem);
  }
});

test.for<[string, object, string | null]>([
  ["without a chosen pipeline", {}, null],
  ["beside the chosen one", { multimodalPipeline: "own" }, "own"],
])(
  "a module that is left out %s is warned of with its reason, and so is a missing folder",
  async ([, settings, name]) => {
    await using folder = await createTemporaryFolder();
    await writeFiles(folder.path, {
      "own/pipelines.mjs": moduleWith("own", aPipeline({})),
      "throws/pipelines.mjs": 'throw new Error("no luck");',
    });
    const warnings = collectWarnings();
    const missing = join(folder.path, "missing");
    const pipeline = await selectPipeline({ model: "m", pipelinePath: [folder.path, missing], ...settings });
    expect(pipeline?.name ?? null).toBe(name);
    await expect
      .poll(() => warnings)
      .toEqual([
        expect.stringMatching(`^The folder ${missing} of the pipeline path cannot be read: ENOENT`),
        `The pipeline module ${join(folder.path, "throws")} is left out: no luck.`,
      ]);
  },
);

const llama = join(goldensFolder, "minigpt4", "llama");

test.for<[string, object, RegExp]>([
  [
    "an unknown name",
    { multimodalPipeline: "blip3" },
    /There is no pipeline "blip3"; available are llava-v1.5-7b, llava-v1.5-13b, minigpt4-7b, minigpt4-13b\./,
  ],
  [
    "no vision model",
    { pipelineParams: {} },
    /parameter vision_model is missing; set it to the folder of a BLIP-2 checkpoint/,
  ],
  [
    "no projector",
    { pipelineParams: { vision_model: join(goldensFolder, "minigpt4/blip2"), projector: 7 } },
    /parameter projector is 7; set it to a safetensors file/,
  ],
  [
    "a projector that does not exist",
    { pipelineParams: { vision_model: join(goldensFolder, "minigpt4/blip2"), projector: "/nowhere.safetensors" } },
    /minigpt4-7b needs \/nowhere\.safetensors, which does not exist/,
  ],
  [
    "a folder that is no vision model",
    { pipelineParams: { vision_model: "/nowhere", projector: "x" } },
    /\/nowhere has no readable config\.json/,
  ],
])("refuses a pipeline with %s", async ([, settings, message]) => {
  await using folder = await createTemporaryFolder();
  await expect(
    openModel(
      { checkpoint: llama, adapter: null, namedAdapters: new Map() },
      { ...miniGpt4Config(folder.path), ...settings },
    ),
  ).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(message),
  });
});

test("refuses a pipeline for a model with a vision part of its own", async () => {
  await using folder = await createTemporaryFolder();
  const config = miniGpt4Config(folder.path);
  await expect(
    openModel({ checkpoint: join(goldensFolder, "llava-default"), adapter: null, namedAdapters: new Map() }, config),
  ).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/LlavaForConditionalGeneration has a vision part of its own/),
  });
});

/** Loads a user's pipeline as far as its model's configuration. PROJECTOR in `source` is a file of weights. */
async function configure(source: string): Promise<ModelDefinition> {
  await using folder = await createTemporaryFolder();
  const pipeline = source.replaceAll("PROJECTOR", JSON.stringify(miniGpt4Params.projector));
  await writeFiles(folder.path, { "mine/pipelines.mjs": moduleWith("mine", pipeline) });
  const config = { ...miniGpt4Config(folder.path), multimodalPipeline: "mine", pipelinePath: [folder.path] };
  const folders = { checkpoint: llama, adapter: null, namedAdapters: new Map() };
  const { definition, checkpoint } = await openModel(folders, config);
  definition.configure(checkpoint.config);
  return definition;
}

const mine = (fields: Readonly<Record<string, string>>): string =>
  aPipeline({ name: '"mine"', weights: "[{ path: PROJECTOR }]", ...fields });

const anEncoder = (fields: string): string =>
  `() => ({ inputs: [{ name: "x", elementType: "float32", shape: ["n", 3] }], imageSize: 16, numImageTokens: 1, build() {}, ${fields} })`;

test.for<[string, string, RegExp]>([
  ["throws", '(() => { throw new Error("no weights"); })()', /The pipeline mine of .* cannot be created: no weights/],
  ["is listed but not returned", "null", /\/mine lists the pipeline mine, but its getPipeline\(\) returns none/],
  ["is a number", "5", /The pipeline mine of .*\/mine is not valid: it is 5; expected an object\./],
  ["has no fields", '({ name: "mine" })', /imageStart is missing; expected a text/],
  ["has another name", mine({ name: '"other"' }), /name is "other"; expected "mine", for which it was asked/],
  ["has an empty placeholder", mine({ imagePlaceholder: '""' }), /imagePlaceholder is ""; expected a text that is not/],
  ["has no weights", mine({ weights: "[]" }), /weights is a list of 0 elements; expected at least one folder or file/],
  ["has a folder for weights", mine({ weights: '["/a"]' }), /weights\[0\] is "\/a"; expected an object/],
  ["has weights without a path", mine({ weights: "[{}]" }), /weights\[0\]\.path is missing; expected a text/],
  [
    "has a text of prefixes",
    mine({ weights: '[{ path: PROJECTOR, prefixes: "vision." }]' }),
    /weights\[0\]\.prefixes is "vision\."; expected a list/,
  ],
  [
    "has prefixes of no tensor",
    mine({ weights: '[{ path: PROJECTOR, prefixes: ["a.", "b."] }]' }),
    /mine needs tensors of .* whose names start with "a\." or "b\."; there are none/,
  ],
  ["has no preprocessorConfig", mine({ preprocessorConfig: "undefined" }), /preprocessorConfig is missing; expected/],
  [
    "has a null preprocessorConfig",
    mine({ preprocessorConfig: "null" }),
    /preprocessorConfig is null; expected .* only/,
  ],
  [
    "has no functions of images",
    mine({ images: "{}" }),
    /images\.createProcessingInfo is missing; expected a function/,
  ],
  ["has a list of images", mine({ images: "[]" }), /images is a list of 0 elements; expected an object/],
  ["has a number for its encoder", mine({ visionEncoder: "5" }), /visionEncoder is 5; expected a function/],
  [
    "has a placeholder outside the vocabulary",
    mine({ placeholderTokenId: "99999" }),
    /placeholder token 99999; the model's vocabulary has \d+ tokens/,
  ],
  [
    "throws in visionEncoder",
    mine({ visionEncoder: '() => { throw new Error("too wide"); }' }),
    /visionEncoder\(\) of the pipeline mine threw: too wide\./,
  ],
  [
    "has an asynchronous visionEncoder",
    mine({ visionEncoder: 'async () => { throw new Error("too late"); }' }),
    /visionEncoder\(\) of the pipeline mine must not be asynchronous/,
  ],
  [
    "returns no encoder",
    mine({ visionEncoder: "() => undefined" }),
    /The vision encoder of the pipeline mine is not valid: it is missing; expected an object/,
  ],
  [
    "returns an empty encoder",
    mine({ visionEncoder: "() => ({})" }),
    /The vision encoder of the pipeline mine is not valid: inputs is missing; expected a list/,
  ],
  [
    "returns an encoder without a build",
    mine({ visionEncoder: anEncoder("build: 5") }),
    /The vision encoder of the pipeline mine is not valid: build is 5; expected a function/,
  ],
])("a user's pipeline that %s is refused by name", async ([, pipeline, message]) => {
  await expect(configure(pipeline)).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(message),
  });
});

test("an error of a function that a pipeline's images have names the pipeline", async () => {
  const images = '{ createProcessingInfo() { throw new Error("no grid"); }, createProcessor: () => null }';
  const definition = await configure(mine({ images, visionEncoder: anEncoder("") }));
  expect(() => definition.images!.createProcessingInfo({} as ProcessorContext)).toThrow(
    expect.objectContaining({
      code: "invalid_configuration",
      message: "createProcessingInfo() of the pipeline mine threw: no grid.",
    }),
  );
});
