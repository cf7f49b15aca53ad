/**
 * Predictions of Vertex AI: `instances`, each the body of a completion, or the body itself for rawPredict and
 * streamRawPredict. https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements
 */
import type { Handler } from "hono";
import { z } from "zod";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { boundedList } from "../../generation/schemas/wire-types.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { completionAnswer } from "../routes/invocations.ts";
import { answerAll, commonFields } from "./enveloped-body.ts";

/** They are computed together, so more would not fit into the engine of a function. */
const MAX_INSTANCES = 128;

const instance = z.looseObject({ "@requestFormat": z.string("must be a string").optional() }, "must be an object");
const predictRequest = z.object({
  instances: boundedList(instance, MAX_INSTANCES, "must be a list of bodies").min(1, "must contain a body"),
  parameters: commonFields,
});

/** Model Garden's clients mark an instance by this, and read `predictions` as its answer instead of as a list. */
const chatFormat = "chatCompletions";

export function vertexPredictRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  const { service, bodies, config } = dependencies;
  const answerRaw = completionAnswer(dependencies);
  return async (c) => {
    service.checkRoom();
    const startMs = epochMs();
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies);
    if (!("instances" in body)) return answerRaw(c, body, startMs);
    const { instances, parameters } = parseFields(predictRequest, body);
    const predictions = await answerAll(
      c,
      // Fields of an instance override the parameters of all.
      instances.map((fields, index) => ({
        body: { ...parameters, ...fields },
        path: `instances[${index}]`,
      })),
      startMs,
      dependencies,
    );
    const isOneAnswer = instances.length === 1 && instances[0]!["@requestFormat"] === chatFormat;
    return c.json({ predictions: isOneAnswer ? predictions[0] : predictions });
  };
}
