/** Arguments for logits processors, by name: `vllm_xargs` of a request and LOGITS_PROCESSOR_DEFAULT_ARGS. */
import { z } from "zod";

const rule = "must be a string, number or boolean, or a list of those";
const finite = z.number({ error: ({ input }) => (typeof input === "number" ? "must be a finite number" : rule) });
const argument = z.union([z.string(), finite, z.boolean()], rule);

/** Names decide nothing here: a processor that does not know one ignores it. */
export const extraArguments = z.record(z.string(), z.union([argument, z.array(argument)], rule), "must be an object");
