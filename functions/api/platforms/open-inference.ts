/**
 * Version 2 of the Open Inference Protocol, which KServe speaks: health, metadata and inference by named tensors.
 * https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
 *
 * Tensors hold bytes: `text_input` prompts of text completions, or `request` whole bodies of completions as JSON, which
 * may have pictures. They are JSON, or binary behind the JSON of the body (`binary-tensors.ts`).
 */
import type { Context, Handler } from "hono";
import { z } from "zod";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { resolveModel } from "../../generation/generation-kind.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { boundedList, flag } from "../../generation/schemas/wire-types.ts";
import type { ErrorBody } from "../../http/error-body.ts";
import { HttpError } from "../../http/errors.ts";
import { parseJson, readJsonObject, readJsonObjectAndRest } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { readVersion } from "../../package-version.ts";
import type { Service } from "../../service.ts";
import { decodeTexts, encodeTexts, jsonLengthHeader, readJsonLength } from "./binary-tensors.ts";
import { answerAll, commonFields } from "./enveloped-body.ts";

/** They are computed together, so more would not fit into the engine of a function. */
const MAX_ELEMENTS = 128;

/** Inputs by name, with the output that answers each. */
const outputOf = { text_input: "text_output", request: "response" } as const;
type InputName = keyof typeof outputOf;
const inputNames = Object.keys(outputOf) as InputName[];

const onlyVersion = "1";

/** Extensions of Triton that would change where or how a tensor is sent. */
const unsupported = ["shared_memory_region", "classification"];
const tensorParameters = z
  .looseObject(
    {
      binary_data_size: z.int("must be an integer").nonnegative("must be at least 0").nullish(),
      binary_data: flag.nullish(),
    },
    "must be an object",
  )
  .refine((parameters) => unsupported.every((name) => !Object.hasOwn(parameters, name)), {
    error: `must not have ${unsupported.join(" or ")}, which are not supported`,
  })
  .nullish();

const input = z.looseObject({
  name: z.enum(inputNames, `must be one of ${inputNames.join(", ")}`),
  shape: boundedList(z.int("must be an integer"), 8, "must be a list of integers"),
  datatype: z.literal("BYTES", "must be BYTES"),
  parameters: tensorParameters,
  data: boundedList(z.string("must be a string"), MAX_ELEMENTS, "must be a list of strings")
    .min(1, "must not be empty")
    .nullish(),
});
const output = z.looseObject({
  name: z.string("must be a string").max(1024, "must have at most 1024 characters"),
  parameters: tensorParameters,
});
export const inferRequest = z.looseObject({
  id: z.string("must be a string").max(1024, "must have at most 1024 characters").nullish(),
  parameters: commonFields,
  inputs: boundedList(input, 1, "must be a list of one tensor").min(1, "must have a tensor"),
  outputs: boundedList(output, 8, "must be a list of tensors").nullish(),
});
type InferRequest = z.output<typeof inferRequest>;

export function serverMetadataRoute(): Handler {
  return (c) => c.json({ name: "fovea", version: readVersion(), extensions: ["binary_tensor_data"] });
}

export function modelMetadataRoute({ config }: AppDependencies): Handler<AppEnvironment> {
  return withStringErrors((c) => {
    const name = requestedModel(c, config.servedModelNames);
    const tensor = (tensorName: string) => ({ name: tensorName, datatype: "BYTES", shape: [-1] });
    return c.json({
      name,
      versions: [onlyVersion],
      platform: "fovea",
      inputs: inputNames.map(tensor),
      outputs: Object.values(outputOf).map(tensor),
    });
  });
}

/** Beside the routes of `health.ts`: the same states in the bodies of this protocol. */
export function protocolReadinessRoute(service: Service): Handler {
  return (c) => c.json({ ready: service.state === "ready" }, service.state === "ready" ? 200 : 503);
}

export function protocolLivenessRoute(service: Service): Handler {
  const isLive = () => service.state !== "failed" && service.stall?.isLasting !== true;
  return (c) => c.json({ live: isLive() }, isLive() ? 200 : 503);
}

export function modelReadinessRoute({ service, config }: AppDependencies): Handler<AppEnvironment> {
  return withStringErrors((c) => {
    const name = requestedModel(c, config.servedModelNames);
    const isReady = service.state === "ready";
    return c.json({ name, ready: isReady }, isReady ? 200 : 503);
  });
}

export function inferRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  const { service, config } = dependencies;
  return withStringErrors(async (c) => {
    const model = requestedModel(c, config.servedModelNames);
    const numJsonBytes = readJsonLength(c.req.header(jsonLengthHeader));
    service.checkRoom();
    const startMs = epochMs();
    const { body, rest } = await readBodyOf(c, numJsonBytes, dependencies);
    const request = parseFields(inferRequest, body);
    const { name, shape } = request.inputs[0]!;
    const isBinary = wantsBinary(request, outputOf[name], model);
    const { binary_data_output: _, ...parameters } = request.parameters ?? {};
    const answers = await answerAll(
      c,
      readElements(request, rest).map((element, index) => {
        const path = `inputs[0].data[${index}]`;
        const fields = name === "request" ? readBody(element, path) : { prompt: element };
        return { body: { ...parameters, ...fields, model }, path };
      }),
      startMs,
      dependencies,
    );
    const texts = answers.map((answer) => (name === "request" ? JSON.stringify(answer) : textOf(answer)));
    const withTensor = (data: object) => ({
      model_name: model,
      model_version: onlyVersion,
      ...(typeof request.id === "string" && { id: request.id }),
      outputs: [{ name: outputOf[name], shape, datatype: "BYTES", ...data }],
    });
    if (!isBinary) return c.json(withTensor({ data: texts }));
    const tensor = encodeTexts(texts);
    const json = Buffer.from(JSON.stringify(withTensor({ parameters: { binary_data_size: tensor.byteLength } })));
    return c.body(Buffer.concat([json, tensor]), 200, {
      "Content-Type": "application/octet-stream",
      [jsonLengthHeader]: String(json.byteLength),
    });
  });
}

/** `rest` is null if the whole body is JSON. */
async function readBodyOf(
  c: Context<AppEnvironment>,
  numJsonBytes: number | null,
  { bodies, config: { maxBodyBytes } }: AppDependencies,
): Promise<{ readonly body: object; readonly rest: Uint8Array | null }> {
  if (numJsonBytes !== null) return readJsonObjectAndRest(c.req.raw, maxBodyBytes, bodies, numJsonBytes);
  // Triton's clients send no content type.
  return { body: await readJsonObject(c.req.raw, maxBodyBytes, bodies, { acceptsUntyped: true }), rest: null };
}

/**
 * The elements of the only input, from the JSON or from the bytes behind it.
 *
 * @throws HttpError 400 if shape, data and bytes do not fit together.
 */
function readElements({ inputs }: InferRequest, rest: Uint8Array | null): readonly string[] {
  const { shape, data, parameters } = inputs[0]!;
  const numElements = shape.reduce((product, size) => product * size, 1);
  const numBytes = parameters?.binary_data_size ?? null;
  const numFollowing = rest?.byteLength ?? 0;
  const sizePath = "inputs[0].parameters.binary_data_size";
  if (numBytes === null) {
    if (!data) throw invalid("inputs[0].data", "must be a list of strings, or follow the JSON with a binary_data_size");
    if (numFollowing > 0) throw invalid(sizePath, `must say whose the ${numFollowing} bytes after the JSON are`);
    if (numElements === data.length) return data;
    throw invalid("inputs[0].shape", `has room for ${numElements} elements, but inputs[0].data has ${data.length}`);
  }
  if (data) throw invalid("inputs[0]", "must have data or parameters.binary_data_size, not both");
  if (rest === null) throw invalid(sizePath, `needs the header ${jsonLengthHeader}`);
  if (numBytes !== numFollowing) throw invalid(sizePath, `is ${numBytes}, but ${numFollowing} bytes follow the JSON`);
  if (numElements >= 1 && numElements <= MAX_ELEMENTS) return decodeTexts(rest, numElements, "inputs[0]");
  throw invalid("inputs[0].shape", `must have 1 to ${MAX_ELEMENTS} elements, not ${numElements}`);
}

/**
 * Whether the output follows the JSON of the answer in binary form.
 *
 * @throws HttpError 400 if another output is requested.
 */
function wantsBinary({ outputs, parameters, inputs }: InferRequest, given: string, model: string): boolean {
  const byDefault = parameters?.binary_data_output ?? false;
  if (typeof byDefault !== "boolean") throw invalid("parameters.binary_data_output", "must be true or false");
  let isBinary = byDefault;
  for (const [index, { name, parameters: ofOutput }] of (outputs ?? []).entries()) {
    if (name !== given) {
      const path = `outputs[${index}].name`;
      const shown = name.slice(0, 100);
      // The beginning is Triton's.
      const message = `unexpected inference output '${shown}' for model '${model}': ${inputs[0]!.name} gives ${given} (${path}).`;
      throw new HttpError(400, "invalid_value", message, { parameter: path });
    }
    isBinary = ofOutput?.binary_data ?? byDefault;
  }
  return isBinary;
}

function invalid(parameter: string, rule: string): HttpError {
  return new HttpError(400, "invalid_value", `${parameter} ${rule}.`, { parameter });
}

/** @throws HttpError 404 for an unknown model, or a version that the metadata does not list. */
function requestedModel(c: Context<AppEnvironment>, servedModelNames: readonly string[]): string {
  const model = resolveModel(c.req.param("model"), servedModelNames);
  const version = c.req.param("version") ?? onlyVersion;
  if (version === onlyVersion) return model;
  const shown = version.slice(0, 40);
  throw new HttpError(404, "model_not_found", `The model \`${model}\` has version ${onlyVersion} only, not ${shown}.`);
}

function readBody(text: string, path: string): object {
  const body = parseJson(text, path);
  if (typeof body === "object" && body !== null && !Array.isArray(body)) return body;
  throw new HttpError(400, "invalid_value", `${path} must be a JSON object.`, { parameter: path });
}

function textOf(answer: object): string {
  const { choices } = answer as { readonly choices: readonly [{ readonly text: string }] };
  return choices[0].text;
}

/** The protocol's errors are strings. */
function withStringErrors(
  handler: (c: Context<AppEnvironment>) => Response | Promise<Response>,
): Handler<AppEnvironment> {
  return (c) => {
    c.set("toErrorBody", ({ error }: ErrorBody) => ({ error: error.message }));
    return handler(c);
  };
}
