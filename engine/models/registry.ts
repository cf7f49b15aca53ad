/** The supported architectures. A new one is a folder with a definition, and a line here. */
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { parseConfigObject } from "./config-field.ts";
import {
  deepseekOcr2Definition,
  deepseekOcrDefinition,
  nativeDeepseekOcr2Definition,
} from "./deepseek-ocr/definition.ts";
import { dotsOcrDefinition } from "./dots-ocr/definition.ts";
import { fuyuDefinition } from "./fuyu/definition.ts";
import { gemma3Definition, gemma3TextDefinition } from "./gemma3/definition.ts";
import { gemma4Definition, gemma4TextDefinition, gemma4UnifiedDefinition } from "./gemma4/definition.ts";
import { glm4MoeDefinition } from "./glm4-moe/definition.ts";
import { glm46vDefinition, glm4vDefinition, glm4vMoeDefinition, glmOcrDefinition } from "./glm4v/definition.ts";
import { graniteDoclingDefinition } from "./granite-docling/definition.ts";
import { hunYuanDenseDefinition, hunYuanVlDefinition } from "./hunyuan-vl/definition.ts";
import { idefics3Definition, smolVlmDefinition } from "./idefics3/definition.ts";
import { internVlDefinition, qianfanOcrDefinition } from "./internvl/definition.ts";
import { lfm2VlDefinition } from "./lfm2-vl/definition.ts";
import { lfm2TextDefinition, lfm3TextDefinition } from "./lfm2/definition.ts";
import { lfm3VlDefinition } from "./lfm3-vl/definition.ts";
import {
  llamaDefinition,
  ministral3Definition,
  mistralDefinition,
  phi3Definition,
  qwen2Definition,
  qwen3Definition,
  qwen3MoeDefinition,
} from "./llama/definition.ts";
import { llavaNextDefinition, llavaOneVisionDefinition } from "./llava-next/definition.ts";
import { llavaDefinition } from "./llava/definition.ts";
import { miniCpmOcrDefinition, miniCpmV46Definition, miniCpmV47Definition } from "./minicpm-v/definition.ts";
import type { ModelDefinition } from "./model-definition.ts";
import { paddleOcrVlDefinition } from "./paddleocr-vl/definition.ts";
import { persimmonDefinition } from "./persimmon/definition.ts";
import {
  earlyLightOnOcrDefinition,
  lightOnOcrDefinition,
  mistral3Definition,
  pixtralDefinition,
} from "./pixtral/definition.ts";
import { qwen25VlDefinition } from "./qwen2-5-vl/definition.ts";
import { qwen2VlDefinition } from "./qwen2-vl/definition.ts";
import {
  qwen35Definition,
  qwen35MoeDefinition,
  qwen35MoeTextDefinition,
  qwen35TextDefinition,
} from "./qwen3-5/definition.ts";
import { qwen3VlDefinition, qwen3VlMoeDefinition } from "./qwen3-vl/definition.ts";

export const modelDefinitions: readonly ModelDefinition[] = [
  llamaDefinition,
  mistralDefinition,
  ministral3Definition,
  phi3Definition,
  qwen2Definition,
  qwen3Definition,
  qwen3MoeDefinition,
  glm4MoeDefinition,
  qwen35TextDefinition,
  qwen35MoeTextDefinition,
  hunYuanDenseDefinition,
  lfm2TextDefinition,
  lfm3TextDefinition,
  lfm2VlDefinition,
  lfm3VlDefinition,
  persimmonDefinition,
  gemma3TextDefinition,
  gemma3Definition,
  gemma4Definition,
  gemma4TextDefinition,
  gemma4UnifiedDefinition,
  llavaDefinition,
  llavaNextDefinition,
  llavaOneVisionDefinition,
  pixtralDefinition,
  mistral3Definition,
  lightOnOcrDefinition,
  earlyLightOnOcrDefinition,
  idefics3Definition,
  smolVlmDefinition,
  graniteDoclingDefinition,
  internVlDefinition,
  qianfanOcrDefinition,
  fuyuDefinition,
  qwen2VlDefinition,
  qwen25VlDefinition,
  qwen3VlDefinition,
  qwen3VlMoeDefinition,
  glm4vDefinition,
  glm46vDefinition,
  glm4vMoeDefinition,
  glmOcrDefinition,
  paddleOcrVlDefinition,
  hunYuanVlDefinition,
  dotsOcrDefinition,
  qwen35Definition,
  qwen35MoeDefinition,
  miniCpmV46Definition,
  miniCpmV47Definition,
  miniCpmOcrDefinition,
  deepseekOcrDefinition,
  deepseekOcr2Definition,
  nativeDeepseekOcr2Definition,
];

const namesExpected = 'a list with the name of the model\'s class, such as ["LlamaForCausalLM"]';
const architectureField = z.looseObject({
  architectures: z.array(z.string(), namesExpected).nonempty(namesExpected),
});
const towerField = z.object({ vision_config: z.object({ model_type: z.string() }) });

/** The architecture that config.json names. Throws EngineError `invalid_checkpoint`. */
function architectureOf(config: unknown): string {
  return parseConfigObject(architectureField, config, "").architectures[0]!;
}

/**
 * @param config The content of config.json.
 * @throws EngineError `unsupported_model` for an architecture without a definition.
 */
export function findModelDefinition(config: unknown): ModelDefinition {
  const definition = chooseDefinition(modelDefinitions, config);
  if (definition === null) {
    const known = [...new Set(modelDefinitions.map((candidate) => candidate.architecture))].join(", ");
    throw new EngineError(
      "unsupported_model",
      `The architecture ${architectureOf(config)} is not supported; supported are: ${known}.`,
    );
  }
  return definition;
}

/**
 * The definition of the checkpoint's architecture and tower, else the one of its architecture that takes all towers, else
 * null.
 */
export function chooseDefinition(candidates: readonly ModelDefinition[], config: unknown): ModelDefinition | null {
  const architecture = architectureOf(config);
  const tower = towerField.safeParse(config).data?.vision_config.model_type;
  const ofArchitecture = candidates.filter((candidate) => candidate.architecture === architecture);
  const ofTower = ofArchitecture.find(({ towerType }) => towerType !== undefined && towerType === tower);
  return ofTower ?? ofArchitecture.find(({ towerType }) => towerType === undefined) ?? null;
}
