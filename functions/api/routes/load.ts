/** GET /load: the number of requests in progress, for load balancers. Lines of batches do not count. */
import type { Handler } from "hono";

import type { Service } from "../../service.ts";

export function loadRoute(service: Service): Handler {
  return (c) => c.json({ server_load: service.numRequests });
}
