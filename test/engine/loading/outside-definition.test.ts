/** A definition outside the repository passes the checks of those that ship: contract, graphs for CUDA, exports. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { findDefinition } from "../../../engine/loading/find-definition.ts";
import type { ModelDefinition } from "../../../engine/models/model-definition.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";
import { testModelDefinition } from "../../contracts/model-definition.ts";
import { cudaDtypes, cudaFamilies, cudaLayouts, familyConfig } from "../../gpu/cuda-families.ts";
import { nodesWithoutCudaKernel } from "../../gpu/cuda-kernels.ts";
import { hubExportCases, writeHubExport } from "../../support/checkpoints/hub-exports.ts";
import { compareHubAnswers, hubEngineConfig } from "../../support/engine/hub-answers.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { createGoldenInputs } from "../input/golden-inputs.ts";
import { startEngine } from "../pipelines/pipeline-engine.ts";

const architecture = "AcmeForConditionalGeneration";
const definition = await definitionOfPage();

/** That of docs/vision-models.md, whose parts are those of fovea/models. */
async function definitionOfPage(): Promise<ModelDefinition> {
  await using folder = await createTemporaryFolder();
  const page = await readFile(new URL("../../../docs/vision-models.md", import.meta.url), "utf8");
  await writeFile(join(folder.path, "acme_vl.ts"), /^```ts acme_vl\.ts\n([^]*?)\n```$/m.exec(page)![1]!);
  const settings = { modelDefinitions: ["acme_vl:acmeVl"], modelDefinitionPath: [folder.path] };
  return await findDefinition({ architectures: [architecture] }, settings);
}

const family = cudaFamilies.find(({ name }) => name === "llava-siglip")!;
const config = await familyConfig(family);
const configured = definition.configure(config);

testModelDefinition("a definition outside the repository", definition, async () => {
  const inputs = await createGoldenInputs("llava-siglip", { definition });
  const { imageInputs, inputProcessor, options } = inputs;
  return {
    imageInputs: imageInputs!,
    inputProcessor,
    tokenizer: options.tokenizer,
    encoderInputs: configured.visionEncoder!.inputs,
    [Symbol.asyncDispose]: () => inputs[Symbol.asyncDispose](),
  };
});

test.for(cudaLayouts.flatMap((kvLayout) => cudaDtypes.map((dtype) => ({ kvLayout, dtype }))))(
  "its graphs in $dtype over $kvLayout.kind have kernels on cuda, and nothing that keeps them from being captured",
  ({ kvLayout, dtype }) => {
    const graphs = configureGraphs(config, { dtype, device: "cuda", maxModelLen: 64, kvLayout, definition });
    const { graph } = graphs.buildDecoder(imaginedWeights);
    expect(nodesWithoutCudaKernel(graph)).toEqual([]);
    expect(nodesWithoutCudaKernel(graphs.buildVisionEncoder(imaginedWeights)!.graph)).toEqual([]);
    const operators = graph.nodes.map(({ operator }) => operator);
    expect(operators.filter((operator) => ["If", "Loop", "Scan"].includes(operator))).toEqual([]);
    if (kvLayout.kind === "slots") return;
    expect(operators.filter((operator) => ["Shape", "Range", "NonZero", "Expand"].includes(operator))).toEqual([]);
    const numAttentions = operators.filter((operator) => operator === "PagedAttention").length;
    expect(numAttentions).toBe(configured.decoder.numLayers);
  },
);

test("a definition outside the repository answers from an export like transformers", async () => {
  await using folder = await createTemporaryFolder();
  await using cache = await createTemporaryFolder();
  await writeHubExport("lighton-ocr", "v5", folder.path);
  const file = join(folder.path, "config.json");
  const json = JSON.parse(await readFile(file, "utf8")) as Record<string, unknown>;
  await writeFile(file, JSON.stringify({ ...json, architectures: [architecture] }));
  const shipped = new URL("../../../engine/models/registry.ts", import.meta.url).href;
  await writeFile(
    join(cache.path, "own.mjs"),
    `import { loadShippedDefinition } from "${shipped}";
     const shipped = await loadShippedDefinition(${JSON.stringify(json)});
     export const own = { ...shipped, architecture: "${architecture}" };`,
  );
  const settings = { modelDefinitions: ["own:own"], modelDefinitionPath: [cache.path] };
  await using engine = await startEngine({ ...hubEngineConfig(folder.path, cache.path), ...settings });
  const cases = hubExportCases("lighton-ocr");
  expect((await compareHubAnswers(engine, folder.path, cases)).numAnswers).toBe(2 * cases.length);
});
