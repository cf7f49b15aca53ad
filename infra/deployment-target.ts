/** What a platform is to the rest: a name and a pure function from a deployment to files. */
import type { Deployment } from "./deployment.ts";

export interface RenderedFile {
  /** Relative to the folder they are written to. */
  readonly path: string;
  readonly text: string;
}

export interface DeploymentTarget {
  /** As `--platform` takes it. */
  readonly name: string;
  /** Variables of the platform's own that it puts beside the settings. */
  readonly platformVariables: readonly string[];
  /** Throws ConfigError for what the platform cannot do, with the path of the field that asks for it. */
  render(deployment: Deployment): readonly RenderedFile[];
}

/** What the image listens on. */
export const PORT = 8000;

/** Routes of `functions/api/routes/health.ts`. */
export const healthPaths = {
  /** 200 only where requests are served. */
  readiness: "/health",
  /** 200 unless only a restart helps. */
  liveness: "/livez",
  /** As readiness, for platforms that tell "still starting" from "ill". */
  ping: "/ping",
} as const;

/** The folder of downloads and quantised weights, which the image sets as CACHE_FOLDER. */
export const containerCacheFolder = "/var/cache/fovea";

/** One problem for each limit that is exceeded; `limit` null is none. */
export function exceeded(
  platform: string,
  limits: readonly (readonly [field: string, value: number | null, limit: number | null, unit: string])[],
): string[] {
  return limits.flatMap(([field, value, limit, unit]) =>
    value === null || limit === null || value <= limit
      ? []
      : [`${field}: ${platform} allows at most ${limit}${unit}, got ${value}${unit}.`],
  );
}
