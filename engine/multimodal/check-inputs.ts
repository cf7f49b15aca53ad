/** What a model's author says of its images, checked once at the start: models in JavaScript have no compiler. */
import { EngineError } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import type { MultiModalProcessor } from "./multimodal-processor.ts";
import type { ProcessingInfo } from "./processing-info.ts";

/** Throws EngineError `invalid_configuration` that names the field. */
export function checkProcessingInfo(info: ProcessingInfo): void {
  const { supportedLimits, minTokensPerItem, maxTokensPerItem, imageSizeWithMostFeatures: largest } = info;
  if (!isObject(supportedLimits)) throw refusal("supportedLimits", supportedLimits, "an object");
  const { image: limit = null } = supportedLimits;
  if (limit !== null && !isCount(limit)) throw refusal("supportedLimits.image", limit, "null or an integer from 0 on");
  if (!isCount(minTokensPerItem)) throw refusal("minTokensPerItem", minTokensPerItem, "an integer from 0 on");
  if (!isCount(maxTokensPerItem)) throw refusal("maxTokensPerItem", maxTokensPerItem, "an integer from 0 on");
  if (!isObject(largest)) throw refusal("imageSizeWithMostFeatures", largest, "an object with width and height");
  for (const edge of ["width", "height"] as const) {
    if (isCount(largest[edge]) && largest[edge] > 0) continue;
    throw refusal(`imageSizeWithMostFeatures.${edge}`, largest[edge], "an integer from 1 on");
  }
  const numTokens = info.numImageTokens(largest);
  if (numTokens <= maxTokensPerItem) return;
  throw new EngineError(
    "invalid_configuration",
    `The model's maxTokensPerItem is ${maxTokensPerItem}; its numImageTokens counts ${shown(numTokens)} for ` +
      `imageSizeWithMostFeatures, ${largest.width} x ${largest.height} pixels.`,
  );
}

const requiredFunctions = ["checkOptions", "numImageTokens", "processImages", "fieldConfigs", "promptUpdates"] as const;

/** Throws EngineError `invalid_configuration` that names the field. */
export function checkProcessor(processor: MultiModalProcessor): void {
  const { imagePlaceholder, imagePlaceholderTokenIds: tokenIds, options, requestOptions } = processor;
  for (const name of requiredFunctions) {
    if (typeof processor[name] !== "function") throw refusal(name, processor[name], "a function");
  }
  if (imagePlaceholder !== null && (typeof imagePlaceholder !== "string" || imagePlaceholder === "")) {
    throw refusal("imagePlaceholder", imagePlaceholder, "a text that is not empty, or null for none");
  }
  if (!Array.isArray(tokenIds)) throw refusal("imagePlaceholderTokenIds", tokenIds, "a list of token ids");
  if ((imagePlaceholder === null) !== (tokenIds.length === 0)) {
    throw refusal("imagePlaceholderTokenIds", tokenIds, "the tokens of imagePlaceholder, or none if that is null");
  }
  const stranger = tokenIds.find((tokenId) => !isCount(tokenId));
  if (stranger !== undefined) throw refusal("imagePlaceholderTokenIds", stranger, "the id of a token");
  if (!isObject(options)) throw refusal("options", options, "an object");
  if (!(requestOptions instanceof Set)) throw refusal("requestOptions", requestOptions, "a Set of names");
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function refusal(field: string, value: unknown, expected: string): EngineError {
  return new EngineError("invalid_configuration", `The model's ${field} is ${shown(value)}; expected ${expected}.`);
}
