/** A program in JavaScript that embeds the HTTP service. Prints its results as JSON. */
import { EngineError } from "fovea";
import { ConfigError, serve } from "fovea/server";

/** @type {import("fovea/server").ServeSettings} */
const settings = { HOST: "127.0.0.1", PORT: 0, BATCH_STORE: "none", LOGITS_PROCESSORS: "steering:OnlyToken" };
const service = await serve(settings);
const engine = await service.ready;
const response = await fetch(`http://127.0.0.1:${service.port}/v1/completions`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ prompt: "a red", max_tokens: 3, ignore_eos: true, vllm_xargs: { only_token: 67 } }),
});
const { usage } = /** @type {{ usage: { completion_tokens: number } }} */ (await response.json());
const isClean = await service.close();

let wrongSetting = "";
try {
  await serve({ PORT: "many" });
} catch (error) {
  if (error instanceof ConfigError) wrongSetting = error.problems[0];
}
process.stdout.write(
  JSON.stringify({
    numTokens: usage.completion_tokens,
    logitsProcessors: engine.modelInfo?.logitsProcessors,
    isClean,
    isEngineError: new EngineError("internal", "") instanceof Error,
    wrongSetting,
  }),
);
