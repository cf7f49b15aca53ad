/** The supported architectures. A new one is a folder with a definition, and a line here. */
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { parseConfigObject } from "./config-field.ts";
import type { ModelDefinition } from "./model-definition.ts";

/**
 * By architecture, followed by the tower if the definition is for one tower only: `ARCHITECTURE of TOWER`. A definition
 * is imported when it is served, because the modules of all families take a tenth of a start.
 */
export const shippedDefinitions: Readonly<Record<string, () => Promise<ModelDefinition>>> = {
  LlamaForCausalLM: async () => (await import("./llama/definition.ts")).llamaDefinition,
  MistralForCausalLM: async () => (await import("./llama/definition.ts")).mistralDefinition,
  Ministral3ForCausalLM: async () => (await import("./llama/definition.ts")).ministral3Definition,
  Phi3ForCausalLM: async () => (await import("./llama/definition.ts")).phi3Definition,
  Qwen2ForCausalLM: async () => (await import("./llama/definition.ts")).qwen2Definition,
  Qwen3ForCausalLM: async () => (await import("./llama/definition.ts")).qwen3Definition,
  Qwen3MoeForCausalLM: async () => (await import("./llama/definition.ts")).qwen3MoeDefinition,
  Glm4MoeForCausalLM: async () => (await import("./glm4-moe/definition.ts")).glm4MoeDefinition,
  Qwen3_5ForCausalLM: async () => (await import("./qwen3-5/definition.ts")).qwen35TextDefinition,
  Qwen3_5MoeForCausalLM: async () => (await import("./qwen3-5/definition.ts")).qwen35MoeTextDefinition,
  HunYuanDenseV1ForCausalLM: async () => (await import("./hunyuan-vl/definition.ts")).hunYuanDenseDefinition,
  Lfm2ForCausalLM: async () => (await import("./lfm2/definition.ts")).lfm2TextDefinition,
  Lfm3ForCausalLM: async () => (await import("./lfm2/definition.ts")).lfm3TextDefinition,
  Lfm2VlForConditionalGeneration: async () => (await import("./lfm2-vl/definition.ts")).lfm2VlDefinition,
  Lfm3VlForConditionalGeneration: async () => (await import("./lfm3-vl/definition.ts")).lfm3VlDefinition,
  PersimmonForCausalLM: async () => (await import("./persimmon/definition.ts")).persimmonDefinition,
  Gemma3ForCausalLM: async () => (await import("./gemma3/definition.ts")).gemma3TextDefinition,
  Gemma3ForConditionalGeneration: async () => (await import("./gemma3/definition.ts")).gemma3Definition,
  Gemma4ForConditionalGeneration: async () => (await import("./gemma4/definition.ts")).gemma4Definition,
  Gemma4ForCausalLM: async () => (await import("./gemma4/definition.ts")).gemma4TextDefinition,
  Gemma4UnifiedForConditionalGeneration: async () => (await import("./gemma4/definition.ts")).gemma4UnifiedDefinition,
  LlavaForConditionalGeneration: async () => (await import("./llava/definition.ts")).llavaDefinition,
  LlavaNextForConditionalGeneration: async () => (await import("./llava-next/definition.ts")).llavaNextDefinition,
  LlavaOnevisionForConditionalGeneration: async () =>
    (await import("./llava-next/definition.ts")).llavaOneVisionDefinition,
  "LlavaForConditionalGeneration of pixtral": async () => (await import("./pixtral/definition.ts")).pixtralDefinition,
  Mistral3ForConditionalGeneration: async () => (await import("./pixtral/definition.ts")).mistral3Definition,
  LightOnOcrForConditionalGeneration: async () => (await import("./pixtral/definition.ts")).lightOnOcrDefinition,
  LightOnOCRForConditionalGeneration: async () => (await import("./pixtral/definition.ts")).earlyLightOnOcrDefinition,
  Idefics3ForConditionalGeneration: async () => (await import("./idefics3/definition.ts")).idefics3Definition,
  SmolVLMForConditionalGeneration: async () => (await import("./idefics3/definition.ts")).smolVlmDefinition,
  GraniteDoclingForConditionalGeneration: async () =>
    (await import("./granite-docling/definition.ts")).graniteDoclingDefinition,
  Granite4VisionForConditionalGeneration: async () =>
    (await import("./granite4-vision/definition.ts")).granite4VisionDefinition,
  GotOcr2ForConditionalGeneration: async () => (await import("./got-ocr2/definition.ts")).gotOcr2Definition,
  InternVLForConditionalGeneration: async () => (await import("./internvl/definition.ts")).internVlDefinition,
  QianfanOCRForConditionalGeneration: async () => (await import("./internvl/definition.ts")).qianfanOcrDefinition,
  FuyuForCausalLM: async () => (await import("./fuyu/definition.ts")).fuyuDefinition,
  Qwen2VLForConditionalGeneration: async () => (await import("./qwen2-vl/definition.ts")).qwen2VlDefinition,
  Qwen2_5_VLForConditionalGeneration: async () => (await import("./qwen2-5-vl/definition.ts")).qwen25VlDefinition,
  Qwen3VLForConditionalGeneration: async () => (await import("./qwen3-vl/definition.ts")).qwen3VlDefinition,
  Qwen3VLMoeForConditionalGeneration: async () => (await import("./qwen3-vl/definition.ts")).qwen3VlMoeDefinition,
  Glm4vForConditionalGeneration: async () => (await import("./glm4v/definition.ts")).glm4vDefinition,
  Glm46VForConditionalGeneration: async () => (await import("./glm4v/definition.ts")).glm46vDefinition,
  Glm4vMoeForConditionalGeneration: async () => (await import("./glm4v/definition.ts")).glm4vMoeDefinition,
  GlmOcrForConditionalGeneration: async () => (await import("./glm4v/definition.ts")).glmOcrDefinition,
  Molmo2ForConditionalGeneration: async () => (await import("./molmo2/definition.ts")).molmo2Definition,
  PaddleOCRVLForConditionalGeneration: async () => (await import("./paddleocr-vl/definition.ts")).paddleOcrVlDefinition,
  HunYuanVLForConditionalGeneration: async () => (await import("./hunyuan-vl/definition.ts")).hunYuanVlDefinition,
  DotsOCRForCausalLM: async () => (await import("./dots-ocr/definition.ts")).dotsOcrDefinition,
  Qwen3_5ForConditionalGeneration: async () => (await import("./qwen3-5/definition.ts")).qwen35Definition,
  Qwen3_5MoeForConditionalGeneration: async () => (await import("./qwen3-5/definition.ts")).qwen35MoeDefinition,
  MiniCPMV4_6ForConditionalGeneration: async () => (await import("./minicpm-v/definition.ts")).miniCpmV46Definition,
  MiniCPMV4_7ForConditionalGeneration: async () => (await import("./minicpm-v/definition.ts")).miniCpmV47Definition,
  MiniCPMOcrForConditionalGeneration: async () => (await import("./minicpm-v/definition.ts")).miniCpmOcrDefinition,
  DeepseekOCRForCausalLM: async () => (await import("./deepseek-ocr/definition.ts")).deepseekOcrDefinition,
  DeepseekOCR2ForCausalLM: async () => (await import("./deepseek-ocr/definition.ts")).deepseekOcr2Definition,
  DeepseekOcr2ForConditionalGeneration: async () =>
    (await import("./deepseek-ocr/definition.ts")).nativeDeepseekOcr2Definition,
};

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
 * The shipped definition of the checkpoint's architecture and tower, else the one of its architecture that takes all towers.
 *
 * @param config The content of config.json.
 * @throws EngineError `unsupported_model` for an architecture without a definition.
 */
export async function loadShippedDefinition(config: unknown): Promise<ModelDefinition> {
  const architecture = architectureOf(config);
  const tower = towerOf(config);
  // A configuration chooses the name of the architecture, which must not be read as one with a tower.
  const classes = /^\w+$/.test(architecture) ? classesOf(architecture) : [];
  const names = classes.flatMap((name) => [`${name} of ${tower}`, name]);
  const name = names.find((candidate) => Object.hasOwn(shippedDefinitions, candidate));
  if (name !== undefined) return shippedDefinitions[name]!();
  const known = Object.keys(shippedDefinitions).filter((key) => !key.includes(" of "));
  throw new EngineError(
    "unsupported_model",
    `The architecture ${architecture} is not supported; supported are: ${known.join(", ")}.`,
  );
}

/**
 * The definition of the checkpoint's architecture and tower, else the one of its architecture that takes all towers, else
 * null.
 */
export function chooseDefinition(candidates: readonly ModelDefinition[], config: unknown): ModelDefinition | null {
  const architecture = architectureOf(config);
  const tower = towerOf(config);
  const ofArchitecture = candidates.filter((candidate) => candidate.architecture === architecture);
  const ofTower = ofArchitecture.find(({ towerType }) => towerType !== undefined && towerType === tower);
  return ofTower ?? ofArchitecture.find(({ towerType }) => towerType === undefined) ?? null;
}

const classifierEnding = /ForSequenceClassification$/u;

/** Whether the checkpoint has a layer `score` in place of its head. */
export function isClassifier(config: unknown): boolean {
  return classifierEnding.test(architectureOf(config));
}

/** Classifiers are the generating models of their family up to the head. */
function classesOf(architecture: string): readonly string[] {
  if (!classifierEnding.test(architecture)) return [architecture];
  return ["ForConditionalGeneration", "ForCausalLM"].map((ending) => architecture.replace(classifierEnding, ending));
}

function towerOf(config: unknown): string | undefined {
  return towerField.safeParse(config).data?.vision_config.model_type;
}
