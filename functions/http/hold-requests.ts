/** Holds requests while the model loads, on platforms that send them as soon as the port is open. */
import type { Handler } from "hono";

import { epochMs } from "../../engine/index.ts";
import type { Service } from "../service.ts";
import type { AppEnvironment } from "./request-trace.ts";

/** Before the body is read, so that a held request has at most the buffers of its connection. */
export function holdWhileStarting(handler: Handler<AppEnvironment>, service: Service): Handler<AppEnvironment> {
  return async function held(c, next) {
    if (service.state === "starting") {
      const startMs = epochMs();
      await service.waitForStart(c.req.raw.signal);
      const endMs = epochMs();
      c.get("logFields").heldMs = Math.round(endMs - startMs);
      c.get("span")?.addStage({ name: "hold", startMs, endMs });
    }
    return handler(c, next);
  };
}
