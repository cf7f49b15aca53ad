import * as fc from "fast-check";

import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { constraint } from "../generators/constraints.ts";
import type { Constraint } from "../generators/constraints.ts";
import { openSurroundings } from "../surroundings.ts";

/** Forms of output that are odd, invalid, or describe enormous languages; some clients disconnect. */
export const constraints: AttackClass = {
  name: "constraints",
  title: "Regular expressions, grammars, schemas and choices that explode",
  numCases: 80,
  routes: ["POST /v1/chat/completions", "POST /v1/completions"],
  prepare: () => openSurroundings(),
  attacks: () =>
    fc
      .record({
        constraint,
        isChat: fc.boolean(),
        stream: fc.boolean(),
        maxTokens: fc.constantFrom(1, 4, 30),
        temperature: fc.constantFrom(0, 1),
        leavesEarly: fc.oneof(
          { weight: 6, arbitrary: fc.constant(false) },
          { weight: 1, arbitrary: fc.constant(true) },
        ),
      })
      .map(createAttack),
  groupSize: 8,
};

interface Parts {
  readonly constraint: Constraint;
  readonly isChat: boolean;
  readonly stream: boolean;
  readonly maxTokens: number;
  readonly temperature: number;
  readonly leavesEarly: boolean;
}

function createAttack({
  constraint: { name, fields },
  isChat,
  stream,
  maxTokens,
  temperature,
  leavesEarly,
}: Parts): Attack {
  const target = isChat ? "/v1/chat/completions" : "/v1/completions";
  const prompt = isChat ? { messages: [{ role: "user", content: "a" }] } : { prompt: "a" };
  const body = JSON.stringify({ ...prompt, structured_outputs: fields, stream, max_tokens: maxTokens, temperature });
  return {
    route: `POST ${target}`,
    label: `${name}${leavesEarly ? ", whose client leaves" : ""}`,
    shown: shorten(body, 2000),
    run: async (wire) => [
      await wire.send({
        method: "POST",
        target,
        headers: { "content-type": "application/json" },
        body,
        ...(leavesEarly && { leaveAfterChunks: 0 }),
      }),
    ],
  };
}
