/** Arguments for logits processors, by name: `vllm_xargs`, `extra_args` of a batch line, LOGITS_PROCESSOR_DEFAULT_ARGS. */
import { z } from "zod";

import { boundedList, boundedRecord, boundedText } from "./wire-types.ts";

/** For all processors of a deployment together. */
const MAX_ARGUMENTS = 64;
/** Every argument is sent to the engine's thread and to each processor. */
const MAX_TEXT_LENGTH = 65_536;
const MAX_LIST_LENGTH = 16_384;

const entryRule = "must be a string, number or boolean";
const finite = z.number({ error: ({ input }) => (typeof input === "number" ? "must be a finite number" : entryRule) });
const entries = [boundedText(MAX_TEXT_LENGTH), finite, z.boolean()] as const;
const rule = `${entryRule}, or a list of those`;

/** Names are not checked: a processor ignores names that it does not know. */
export const extraArguments = boundedRecord(
  z.union([...entries, boundedList(z.union(entries, entryRule), MAX_LIST_LENGTH, rule)], rule),
  MAX_ARGUMENTS,
  "must be an object",
);
