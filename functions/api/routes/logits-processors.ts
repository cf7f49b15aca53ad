/** GET /v1/logits-processors: the loaded custom logits processors in the order of application. */
import type { Handler } from "hono";

import type { Service } from "../../service.ts";

export function logitsProcessorsRoute(service: Service): Handler {
  return (c) => {
    const names = service.engine?.modelInfo?.logitsProcessors ?? [];
    return c.json({ object: "list", data: names.map((id) => ({ id, object: "logits_processor" })) });
  };
}
