/** Arguments for logits processors, by name: `vllm_xargs`, `extra_args` of a batch line, LOGITS_PROCESSOR_DEFAULT_ARGS. */
import { z } from "zod";

const entryRule = "must be a string, number or boolean";
const finite = z.number({ error: ({ input }) => (typeof input === "number" ? "must be a finite number" : entryRule) });
const argument = z.union([z.string(), finite, z.boolean()], entryRule);

/** Names decide nothing here: a processor that does not know one ignores it. */
export const extraArguments = z.record(
  z.string(),
  z.union([argument, z.array(argument)], `${entryRule}, or a list of those`),
  "must be an object",
);
