/** The service that clients talk to in tests: the shipped checkpoint, with JSON of few white spaces. */
import { fileURLToPath } from "node:url";

import { startService } from "../../support/running-service.ts";
import type { RunningService } from "../../support/running-service.ts";

export const model = "fovea-shapes";

export function startClientService(): Promise<RunningService> {
  const processor = fileURLToPath(new URL("no-blank-runs.ts", import.meta.url));
  return startService({ LOGITS_PROCESSORS: `${processor}:NoBlankRuns` });
}
