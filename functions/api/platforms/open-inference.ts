/**
 * Version 2 of the Open Inference Protocol, which KServe speaks: health, metadata and inference by named tensors.
 * https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
 *
 * Tensors hold bytes: `text_input` prompts of text completions, or `request` whole bodies of completions as JSON, which
 * may have pictures.
 */
import type { Context, Handler } from "hono";
import { z } from "zod";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { resolveModel } from "../../generation/generation-kind.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { boundedList } from "../../generation/schemas/wire-types.ts";
import type { ErrorBody } from "../../http/error-body.ts";
import { HttpError } from "../../http/errors.ts";
import { parseJson, readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { readVersion } from "../../package-version.ts";
import type { Service } from "../../service.ts";
import { answerAll, commonFields } from "./enveloped-body.ts";

/** They are computed together, so more would not fit into the engine of a function. */
const MAX_ELEMENTS = 128;

/** Inputs by name, with the output that answers each. */
const outputOf = { text_input: "text_output", request: "response" } as const;
type InputName = keyof typeof outputOf;
const inputNames = Object.keys(outputOf) as InputName[];

const onlyVersion = "1";

const input = z.looseObject({
  name: z.enum(inputNames, `must be one of ${inputNames.join(", ")}`),
  shape: boundedList(z.int("must be an integer"), 8, "must be a list of integers"),
  datatype: z.literal("BYTES", "must be BYTES"),
  data: boundedList(z.string("must be a string"), MAX_ELEMENTS, "must be a list of strings").min(
    1,
    "must not be empty",
  ),
});
export const inferRequest = z.looseObject({
  id: z.string("must be a string").max(1024, "must have at most 1024 characters").nullish(),
  parameters: commonFields,
  inputs: boundedList(input, 1, "must be a list of one tensor").min(1, "must have a tensor"),
});

export function serverMetadataRoute(): Handler {
  return (c) => c.json({ name: "fovea", version: readVersion(), extensions: [] });
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
  const { service, bodies, config } = dependencies;
  return withStringErrors(async (c) => {
    const model = requestedModel(c, config.servedModelNames);
    refuseBinaryTensors(c);
    service.checkRoom();
    const startMs = epochMs();
    // Triton's clients send no content type.
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies, { acceptsUntyped: true });
    const { id, parameters, inputs } = parseFields(inferRequest, body);
    const { name, shape, data } = inputs[0]!;
    const numElements = shape.reduce((product, size) => product * size, 1);
    if (numElements !== data.length) {
      const rule = `has room for ${numElements} elements, but inputs[0].data has ${data.length}`;
      throw new HttpError(400, "invalid_value", `inputs[0].shape ${rule}.`, { parameter: "inputs[0].shape" });
    }
    const answers = await answerAll(
      c,
      data.map((element, index) => {
        const path = `inputs[0].data[${index}]`;
        const fields = name === "request" ? readBody(element, path) : { prompt: element };
        return { body: { ...parameters, ...fields, model }, path };
      }),
      startMs,
      dependencies,
    );
    const texts = answers.map((answer) => (name === "request" ? JSON.stringify(answer) : textOf(answer)));
    return c.json({
      model_name: model,
      model_version: onlyVersion,
      ...(typeof id === "string" && { id }),
      outputs: [{ name: outputOf[name], shape, datatype: "BYTES", data: texts }],
    });
  });
}

/** @throws HttpError 404 for an unknown model, or a version that the metadata does not list. */
function requestedModel(c: Context<AppEnvironment>, servedModelNames: readonly string[]): string {
  const model = resolveModel(c.req.param("model"), servedModelNames);
  const version = c.req.param("version") ?? onlyVersion;
  if (version === onlyVersion) return model;
  const shown = version.slice(0, 40);
  throw new HttpError(404, "model_not_found", `The model \`${model}\` has version ${onlyVersion} only, not ${shown}.`);
}

/** The extension of Triton and KServe for tensors behind the JSON of a body, which the metadata does not list. */
function refuseBinaryTensors(c: Context<AppEnvironment>): void {
  if (c.req.header("inference-header-content-length") === undefined) return;
  throw new HttpError(
    400,
    "unsupported_field",
    "Binary tensors are not supported: send data as JSON, with binary_data=False in the clients of Triton and KServe.",
  );
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
