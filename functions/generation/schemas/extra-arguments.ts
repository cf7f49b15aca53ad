/** Arguments for logits processors, by name: `vllm_xargs`, `extra_args` of a batch line. */
import { z } from "zod";

import { extraArgumentLimits } from "../../../engine/index.ts";
import { boundedList, boundedRecord, boundedText } from "./wire-types.ts";

const entryRule = "must be a string, number or boolean";
const finite = z.number({ error: ({ input }) => (typeof input === "number" ? "must be a finite number" : entryRule) });
const entries = [boundedText(extraArgumentLimits.textCharacters), finite, z.boolean()] as const;
const rule = `${entryRule}, or a list of those`;

/** Names are not checked: a processor ignores names that it does not know. */
export const extraArguments = boundedRecord(
  z.union([...entries, boundedList(z.union(entries, entryRule), extraArgumentLimits.listEntries, rule)], rule),
  extraArgumentLimits.arguments,
  "must be an object",
  extraArgumentLimits.nameCharacters,
);
