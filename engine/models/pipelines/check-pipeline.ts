/** Checks pipelines and what their functions return: modules in JavaScript are not checked by a compiler. */
import { z } from "zod";

import { EngineError } from "../../contract/errors.ts";
import { describeError, shown } from "../../excerpt.ts";
import { describeProblem, readBySchema } from "../../schema-problem.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import type { Pipeline } from "./pipeline.ts";

const callable = z.custom((value) => typeof value === "function", "a function");
const textOfCharacters = z.string().min(1, "a text that is not empty");

const pipelineSchema = z
  .looseObject({
    name: z.string(),
    imageStart: z.string(),
    imageEnd: z.string(),
    imagePlaceholder: textOfCharacters,
    placeholderTokenId: z.custom(Number.isInteger, "the id of a token"),
    weights: z
      .array(z.looseObject({ path: textOfCharacters, prefixes: z.array(z.string()).optional() }))
      .min(1, "at least one folder or file"),
    images: z
      .looseObject({
        createProcessingInfo: callable,
        createProcessor: callable,
        createDummyInputs: callable.optional(),
        pixelProgram: z.instanceof(URL, { error: "a URL" }).optional(),
      })
      .optional(),
    preprocessorConfig: z.looseObject({}, "the content of a preprocessor_config.json").nullable(),
    visionEncoder: callable,
  })
  .refine(({ preprocessorConfig, images }) => preprocessorConfig !== null || images?.pixelProgram !== undefined, {
    path: ["preprocessorConfig"],
    error: "the content of a preprocessor_config.json, which only a pixelProgram makes unnecessary",
  });

/**
 * Returns `value`.
 *
 * @param subject Opens the message: `The pipeline mine of /pipelines/mine`.
 * @param name The name that it must have; null for any.
 * @throws EngineError `invalid_configuration` that says which field has which value, and what is expected.
 */
export function requirePipeline(subject: string, value: unknown, name: string | null): Pipeline {
  requireShape(subject, pipelineSchema, value);
  const pipeline = value as Pipeline;
  if (name !== null && pipeline.name !== name) {
    const problem = `name is ${shown(pipeline.name)}; expected ${shown(name)}, for which it was asked`;
    throw new EngineError("invalid_configuration", `${subject} is not valid: ${problem}.`);
  }
  return pipeline;
}

const visionEncoderSchema = z.looseObject({
  inputs: z
    .array(
      z.looseObject({
        name: z.string(),
        elementType: z.string(),
        shape: z.array(z.union([z.number(), z.string()], "a number or a name")),
      }),
    )
    .min(1),
  imageSize: z.number().gt(0),
  numImageTokens: z.int().min(1),
  build: callable,
});

/** Returns `value`. Throws EngineError `invalid_configuration`, as `requirePipeline` does. */
export function requireVisionEncoder(pipelineName: string, value: unknown): VisionEncoderDefinition {
  requireShape(`The vision encoder of the pipeline ${pipelineName}`, visionEncoderSchema, value);
  return value as VisionEncoderDefinition;
}

function requireShape(subject: string, schema: z.ZodType, value: unknown): void {
  const result = readBySchema(schema, value);
  if (result.isValid) return;
  throw new EngineError("invalid_configuration", `${subject} is not valid: ${describeProblem(result)}.`);
}

/**
 * Calls a function of a pipeline.
 *
 * @param name Of the function.
 * @throws EngineError of the function, and `invalid_configuration` with the names for any other error and a promise.
 */
export function callPipeline<Returned>(pipelineName: string, name: string, call: () => Returned): Returned {
  let returned: Returned;
  try {
    returned = call();
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw new EngineError(
      "invalid_configuration",
      `${name}() of the pipeline ${pipelineName} threw: ${describeError(cause)}.`,
      { cause },
    );
  }
  if (!(returned instanceof Promise)) return returned;
  // A rejection that is not handled would end the process.
  returned.catch(() => {});
  throw new EngineError("invalid_configuration", `${name}() of the pipeline ${pipelineName} must not be asynchronous.`);
}
