/** GET /version. */
import type { Handler } from "hono";

import { readVersion } from "../../package-version.ts";

export function versionRoute(): Handler {
  return (c) => c.json({ version: readVersion() });
}
