/** Dependencies of the routes. */
import type { Batches } from "./batch/batches.ts";
import type { RequestConfig } from "./generation/generation-kind.ts";
import type { BodyIntake } from "./http/body-intake.ts";
import type { EventsDependencies } from "./jobs/push/events-dependencies.ts";
import type { RunpodJobs } from "./jobs/runpod-local/runpod-jobs.ts";
import type { Logger } from "./logger.ts";
import type { Metrics } from "./metrics.ts";
import type { Service } from "./service.ts";
import type { Config } from "./settings/config.ts";
import type { Snapshots } from "./snapshots.ts";
import type { Telemetry } from "./telemetry/telemetry.ts";

export type ApiConfig = Pick<
  Config,
  | "allowedOrigins"
  | "apiKeys"
  | "hasPlayground"
  | "maxBodyBytes"
  | "servedModelNames"
  | "pingStatusWhileStarting"
  | "vertexRoutes"
> &
  RequestConfig & { readonly engine: Pick<Config["engine"], "pipelinePath" | "maxNumSequences" | "dataParallelSize"> };

export interface AppDependencies {
  readonly service: Service;
  readonly bodies: BodyIntake;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly config: ApiConfig;
  /** Absent without ADMIN_KEY. */
  readonly admin?: { readonly keys: readonly string[]; readonly snapshots: Snapshots };
  /** Absent if no traces are sent. */
  readonly telemetry?: Telemetry;
  /** False leaves only the routes that show the state of the process. Default true. */
  readonly servesRequests?: boolean;
  /** Absent if batches are off. */
  readonly loadBatches?: () => Promise<Batches>;
  /** Absent if no events are accepted. */
  readonly events?: EventsDependencies;
  /** Absent without RunPod's local API. */
  readonly runpodJobs?: RunpodJobs;
  /** Silence after which a stream sends a comment; default 10 s. */
  readonly keepAliveMs?: number;
}
