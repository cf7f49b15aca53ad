/** POST /tokenize: the tokens of a prompt or of a conversation, images included, as the engine counts them. */
import type { Handler } from "hono";
import { z } from "zod";

import type { AppDependencies } from "../../app-dependencies.ts";
import { chatCompletionKind } from "../../generation/chat-completion-kind.ts";
import { completionKind } from "../../generation/completion-kind.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { addIssue, flag, text } from "../../generation/schemas/wire-types.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { admittedRoute, onlyRequestOf, promptsOf } from "../admitted-route.ts";

/** vLLM's fields. The body may also have the fields of the route that generates for such a body. */
export const tokenizeFields = z
  .object({ return_token_strs: flag.nullish(), prompt: text.nullish(), messages: z.unknown().optional() })
  .superRefine(({ prompt, messages = null }, context) => {
    if (typeof prompt === "string" && messages !== null)
      addIssue(context, "prompt", "cannot be combined with messages");
    if (typeof prompt !== "string" && messages === null) addIssue(context, "prompt", "or messages must be given");
  });

export function tokenizeRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return admittedRoute(dependencies, async (request) => {
    const { engine, signal } = request.admission;
    const { return_token_strs: returnsTexts, prompt } = parseFields(tokenizeFields, request.body);
    const prompts =
      typeof prompt === "string"
        ? promptsOf(completionKind, request, dependencies)
        : promptsOf(chatCompletionKind, request, dependencies);
    const { tokenIds } = await engine.render(onlyRequestOf(prompts), { signal, exceedsModelLen: true });
    return {
      count: tokenIds.length,
      max_model_len: engine.modelInfo?.maxModelLen ?? null,
      tokens: tokenIds,
      token_strs: returnsTexts === true ? engine.tokensOf(tokenIds) : null,
    };
  });
}
