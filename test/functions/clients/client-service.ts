/** The service that clients talk to in tests: the shipped checkpoint, whose outputs have the lengths that tests need. */
import { fileURLToPath } from "node:url";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

export const model = "fovea-shapes";

export function startClientService(environment: Readonly<Record<string, string>> = {}): Promise<RunningService> {
  const processor = fileURLToPath(new URL("length-processor.ts", import.meta.url));
  return startService({ LOGITS_PROCESSORS: `${processor}:ForClients`, ...environment });
}
