/** Wire schema of list queries: limit, after, order. */
import { z } from "zod";

import { isId } from "../ids.ts";
import type { IdKind } from "../ids.ts";

/** OpenAI's limits for files and batches. */
const maxLimits = { file: 10_000, batch: 100 } as const satisfies Record<IdKind, number>;
const defaultLimits = { file: 1000, batch: 20 } as const satisfies Record<IdKind, number>;

export function pageQuery(kind: IdKind) {
  const rule = `must be a whole number from 1 to ${maxLimits[kind]}`;
  return z.object({
    limit: z.coerce.number(rule).int(rule).min(1, rule).max(maxLimits[kind], rule).default(defaultLimits[kind]),
    after: z
      .string()
      .refine((id) => isId(kind, id), `must be the id of a ${kind}`)
      .nullable()
      .default(null),
    order: z.enum(["asc", "desc"], "must be asc or desc").default("desc"),
  });
}
