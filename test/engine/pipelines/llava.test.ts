/** LLaVA as a pipeline over a text checkpoint, against LLaVA as a model of its own. */
import { join } from "node:path";
import { expect, test } from "vitest";

import { goldensFolder, loadGoldens, pictureReference, type GoldenCase } from "../../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { answer, startEngine } from "./pipeline-engine.ts";
import { writeLanguageModel } from "./stored-tensors.ts";

test("the pipeline of the model's name gives the answers of the whole model", async () => {
  await using folder = await createTemporaryFolder();
  const model = join(folder.path, "tiny-LLaVA-v1.5-7b");
  await writeLanguageModel("llava-default", model);
  await using engine = await startEngine({
    ...goldenEngineConfig("llava-default", join(folder.path, "cache")),
    model,
    pipelineParams: { vision_model: join(goldensFolder, "llava-default") },
  });
  expect(engine.modelInfo).toMatchObject({ architecture: "LlamaForCausalLM", pipeline: "llava-v1.5-7b" });
  const { cases } = await loadGoldens("llava-default");
  for (const golden of cases as readonly (GoldenCase & { readonly text: string })[]) {
    const references = await Promise.all(golden.pictures.map(pictureReference));
    const images = references.map((reference) => ({ type: "image", reference }) as const);
    const { tokenIds } = await answer(engine, { kind: "text", text: golden.text, addSpecialTokens: false, images });
    expect(tokenIds).toEqual(golden.greedyTokenIds);
  }
});

test("without vision_model, the same model serves text only", async () => {
  await using folder = await createTemporaryFolder();
  const model = join(folder.path, "llava-v1.5-7b");
  await writeLanguageModel("llava-default", model);
  await using engine = await startEngine({ ...goldenEngineConfig("llama", join(folder.path, "cache")), model });
  expect(engine.modelInfo).toMatchObject({ acceptsImages: false });
  expect(engine.modelInfo).not.toHaveProperty("pipeline");
});
