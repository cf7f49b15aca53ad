/** GLM-4.5, 4.6 and 4.7, and their Air models: text models with experts. */
import { createDecoderDefinition } from "../llama/definition.ts";
import { parseGlm4MoeConfig } from "./config.ts";

export const glm4MoeDefinition = createDecoderDefinition("Glm4MoeForCausalLM", parseGlm4MoeConfig);
