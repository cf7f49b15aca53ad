/** A program in TypeScript that embeds the engine, with its own logits processor. Prints its results as JSON. */
import { generateText } from "ai";
import { createEngine, createSamplingParams, EngineError } from "fovea";
import type { Engine, EngineOptions, GenerationRequest, RequestOutput } from "fovea";
import { fovea } from "fovea/ai";
import type { FoveaModelOptions } from "fovea/ai";

import { OnlyToken } from "./steering.ts";

const options: EngineOptions = { maxNumSequences: 2, imageLimits: { maxImagesPerPrompt: 1 } };
const engine: Engine = createEngine(options, { logitsProcessors: [OnlyToken] });
await engine.ready;

const request: GenerationRequest = {
  requestId: "steered",
  prompt: { kind: "text", text: "a red", addSpecialTokens: true },
  samplingParams: createSamplingParams({ maxTokens: 3, ignoreEos: true, extraArgs: { only_token: 67 } }),
};
const outputs: RequestOutput[] = [];
for await (const output of engine.generate(request)) outputs.push(output);

let refusal = "";
try {
  createSamplingParams({ temperature: -1 });
} catch (error) {
  if (error instanceof EngineError) refusal = error.code;
}

const modelOptions: FoveaModelOptions = { modelId: "shapes" };
const { response } = await generateText({ model: fovea(engine, modelOptions), prompt: "How many shapes are there?" });
await engine.close();
process.stdout.write(
  JSON.stringify({
    tokenIds: outputs.flatMap(({ tokenIds }) => tokenIds),
    logitsProcessors: engine.modelInfo?.logitsProcessors,
    refusal,
    modelId: response.modelId,
  }),
);
