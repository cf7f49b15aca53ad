/** POST /detokenize: the text of tokens, special tokens included. */
import type { Handler } from "hono";
import { z } from "zod";

import type { AppDependencies } from "../../app-dependencies.ts";
import { resolveModel } from "../../generation/generation-kind.ts";
import { MAX_PROMPT_TOKENS } from "../../generation/schemas/completion-request.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { boundedText, MAX_NAME_LENGTH, tokenIdList } from "../../generation/schemas/wire-types.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { admittedRoute } from "../admitted-route.ts";

export const detokenizeRequest = z.object({
  model: boundedText(MAX_NAME_LENGTH).nullish(),
  tokens: tokenIdList(MAX_PROMPT_TOKENS, "must be a list of token ids"),
});

export function detokenizeRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return admittedRoute(dependencies, async ({ body, admission }) => {
    const { model, tokens } = parseFields(detokenizeRequest, body);
    resolveModel(model, dependencies.config.servedModelNames);
    return { prompt: await admission.engine.detokenize(tokens) };
  });
}
