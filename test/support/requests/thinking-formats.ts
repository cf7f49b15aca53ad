/** Formats of a model that writes calls like Hermes and thinking like Qwen3. */
import { hermesFormat } from "../../../functions/generation/parsed-output/formats/hermes.ts";
import type { ConfiguredFormats } from "../../../functions/generation/parsed-output/model-formats.ts";

export const thinkingFormats: ConfiguredFormats = {
  toolCalls: hermesFormat,
  reasoning: { name: "qwen3", start: "<think>", end: "</think>", startsInside: false },
};
