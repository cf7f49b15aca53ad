/** Kinds of queues by the scheme of their address. A new one is a file of this folder and an entry here. */
import type { Logger } from "../../logger.ts";
import type { Config } from "../../settings/config.ts";
import { ConfigError } from "../../settings/setting.ts";
import type { JobSource } from "../job-source.ts";
import type { RunpodWorkerSettings } from "./runpod-api.ts";

export interface JobSourceSettings {
  readonly leaseMs: number;
  /** Region of the AWS settings; null if the SDK finds it itself. */
  readonly awsRegion: string | null;
  readonly runpod: Config["jobs"]["runpod"];
  /** The answer to `GET /v1/models`, for queues whose jobs may ask for it. */
  readonly listModels: () => object;
  readonly logger: Logger;
}

type RunpodSettings = Omit<JobSourceSettings["runpod"], "pingMs">;
type OpenJobSource = (address: URL, settings: JobSourceSettings) => Promise<JobSource>;

/** Clients are imported on first use only. */
const openers: Readonly<Record<string, OpenJobSource>> = {
  async sqs(address, { leaseMs, awsRegion: region }) {
    const { createSqsJobSource } = await import("./sqs-job-source.ts");
    return createSqsJobSource({ queueUrl: withScheme(address, "https"), region, leaseMs });
  },
  /** For servers of SQS's protocol without TLS, such as ElasticMQ. */
  async "sqs+http"(address, { leaseMs, awsRegion: region }) {
    const { createSqsJobSource } = await import("./sqs-job-source.ts");
    return createSqsJobSource({ queueUrl: withScheme(address, "http"), region, leaseMs });
  },
  redis: openRedis,
  rediss: openRedis,
  async runpod(_address, { runpod: { pingMs, ...worker }, listModels, logger }) {
    const { createRunpodJobSource } = await import("./runpod-job-source.ts");
    return createRunpodJobSource({ worker: toRunpodWorker(worker), pingMs, listModels, logger });
  },
};

function toRunpodWorker({ jobUrl, outputUrl, streamUrl, workerId, ...rest }: RunpodSettings): RunpodWorkerSettings {
  if (jobUrl?.includes("/job-take/") && outputUrl !== null && streamUrl !== null && workerId !== null) {
    return { jobUrl, outputUrl, streamUrl, workerId, ...rest };
  }
  throw new ConfigError([
    "JOB_SOURCE is runpod, but this is no worker of a queue-based RunPod endpoint: RUNPOD_WEBHOOK_GET_JOB (with /job-take/ in it), RUNPOD_WEBHOOK_POST_OUTPUT, RUNPOD_WEBHOOK_POST_STREAM and RUNPOD_POD_ID must be set. RunPod sets them.",
  ]);
}

async function openRedis(address: URL, { leaseMs }: JobSourceSettings): Promise<JobSource> {
  const { createRedisJobSource } = await import("./redis-job-source.ts");
  const queue = address.searchParams.get("queue");
  if (queue === null || queue === "") {
    throw new ConfigError(["JOB_SOURCE names no queue: write redis://host:port/0?queue=name."]);
  }
  const url = new URL(address);
  url.search = "";
  return createRedisJobSource({
    url: url.href,
    queue,
    prefix: address.searchParams.get("prefix") ?? "bull",
    leaseMs,
  });
}

/** @throws ConfigError for an unknown kind or an incomplete address. */
export async function openJobSource(address: string, settings: JobSourceSettings): Promise<JobSource> {
  const url = new URL(address);
  const scheme = url.protocol.slice(0, -1);
  const open = Object.hasOwn(openers, scheme) ? openers[scheme] : undefined;
  if (open === undefined) {
    const schemes = Object.keys(openers).map((known) => `${known}://`);
    throw new ConfigError([`JOB_SOURCE starts with ${scheme}://; expected one of ${schemes.join(", ")}.`]);
  }
  return open(url, settings);
}

function withScheme({ host, pathname }: URL, scheme: string): string {
  return `${scheme}://${host}${pathname}`;
}
