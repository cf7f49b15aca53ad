/** POST /admin/quiesce and /admin/resume: for platforms that take snapshots of a process's memory. */
import type { Handler } from "hono";

import type { AppEnvironment } from "../../http/request-trace.ts";
import type { Service } from "../../service.ts";
import type { Snapshots } from "../../snapshots.ts";

/** Its own connection closes with the answer. */
export function quiesceRoute(snapshots: Snapshots): Handler<AppEnvironment> {
  return async (c) => {
    const { isClean, seconds } = await snapshots.quiesce();
    return c.json({ status: "quiesced", clean: isClean, seconds }, 200, { Connection: "close" });
  };
}

export function resumeRoute(snapshots: Snapshots, service: Service): Handler<AppEnvironment> {
  return async (c) => {
    await snapshots.resume();
    return c.json({ status: service.state });
  };
}
