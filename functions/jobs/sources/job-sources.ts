/** Kinds of queues by the scheme of their address. A new one is a file of this folder and an entry here. */
import type { Logger } from "../../logger.ts";
import type { Config } from "../../settings/config.ts";
import { ConfigError } from "../../settings/setting.ts";
import type { JobSource } from "../job-source.ts";
import type { RunpodWorkerSettings } from "./runpod-api.ts";
import { regionOfQueue } from "./sqs-region.ts";

export interface JobSourceSettings {
  readonly leaseMs: number;
  /** Deliveries after which a job is rejected. */
  readonly maxNumDeliveries: number;
  /** Region of the AWS settings; null if the SDK finds it itself. */
  readonly awsRegion: string | null;
  /** The answer to `GET /v1/models`, for queues whose jobs may ask for it. */
  readonly listModels: () => object;
  readonly logger: Logger;
}

/** What RunPod tells its workers in the environment. */
type RunpodSettings = Config["jobs"]["runpod"];

/** Opens the source of an address, whose client is imported then. */
export type OpenJobSource = (settings: JobSourceSettings) => Promise<JobSource>;

/** Kinds of queues by scheme. Each checks an address at once and throws ConfigError for an incomplete one. */
const kinds: Readonly<Record<string, (address: URL, runpod: RunpodSettings) => OpenJobSource>> = {
  sqs: (address) => openSqs(withScheme(address, "https")),
  /** For servers of SQS's protocol without TLS, such as ElasticMQ. */
  "sqs+http": (address) => openSqs(withScheme(address, "http")),
  redis: openRedis,
  rediss: openRedis,
  amqp: openAmqp,
  amqps: openAmqp,
  nats: openNats,
  "nats+tls": openNats,
  pubsub: ({ host, pathname }) => openPubSub(`${host}${pathname}`, null),
  /** For emulators: without TLS and credentials. */
  "pubsub+http": ({ host, pathname }) => openPubSub(pathname.slice(1), `http://${host}`),
  runpod(_, { pingMs, ...settings }) {
    const worker = toRunpodWorker(settings);
    return async ({ listModels, logger }) => {
      const { createRunpodJobSource } = await import("./runpod-job-source.ts");
      return createRunpodJobSource({ worker, pingMs, listModels, logger });
    };
  },
};

function toRunpodWorker({
  jobUrl,
  outputUrl,
  streamUrl,
  workerId,
  ...rest
}: Omit<RunpodSettings, "pingMs">): RunpodWorkerSettings {
  if (jobUrl?.includes("/job-take/") && outputUrl !== null && streamUrl !== null && workerId !== null) {
    return { jobUrl, outputUrl, streamUrl, workerId, ...rest };
  }
  const missing = [
    jobUrl?.includes("/job-take/") ? null : "RUNPOD_WEBHOOK_GET_JOB (with /job-take/ in it)",
    outputUrl === null ? "RUNPOD_WEBHOOK_POST_OUTPUT" : null,
    streamUrl === null ? "RUNPOD_WEBHOOK_POST_STREAM" : null,
    workerId === null ? "RUNPOD_POD_ID" : null,
  ].filter((name) => name !== null);
  throw new ConfigError([
    `JOB_SOURCE is runpod, but this is no worker of a queue-based RunPod endpoint: missing ${missing.join(", ")}. RunPod sets them in its workers.`,
  ]);
}

function openSqs(queueUrl: string): OpenJobSource {
  if (!URL.canParse(queueUrl) || new URL(queueUrl).pathname.length < 2) {
    throw new ConfigError(["JOB_SOURCE names no queue: write sqs:// and the rest of the queue's URL."]);
  }
  return async ({ leaseMs, maxNumDeliveries, awsRegion: region, logger }) => {
    const { createSqsJobSource } = await import("./sqs-job-source.ts");
    return createSqsJobSource({ queueUrl, region, leaseMs, maxNumDeliveries, logger });
  };
}

function openRedis(address: URL): OpenJobSource {
  const queue = address.searchParams.get("queue");
  if (queue === null || queue === "") {
    throw new ConfigError(["JOB_SOURCE names no queue: write redis://host:port/0?queue=name."]);
  }
  const prefix = address.searchParams.get("prefix") ?? "bull";
  const url = new URL(address);
  url.search = "";
  return async ({ leaseMs, logger }) => {
    const { createRedisJobSource } = await import("./redis-job-source.ts");
    return createRedisJobSource({ url: url.href, queue, prefix, leaseMs, logger });
  };
}

function openAmqp(address: URL): OpenJobSource {
  const queue = address.searchParams.get("queue");
  if (queue === null || queue === "") {
    throw new ConfigError(["JOB_SOURCE names no queue: write amqp://user:password@host:5672/vhost?queue=name."]);
  }
  const url = new URL(address);
  url.search = "";
  return async ({ logger }) => {
    const { createAmqpJobSource } = await import("./amqp-job-source.ts");
    return createAmqpJobSource({ url: url.href, queue, logger });
  };
}

function openNats({ host, pathname, protocol, searchParams, username, password }: URL): OpenJobSource {
  const [stream, consumer, ...rest] = pathname.slice(1).split("/");
  if (!stream || !consumer || rest.length > 0) {
    throw new ConfigError(["JOB_SOURCE names no stream and consumer: write nats://host:4222/stream/consumer."]);
  }
  const user = username === "" ? null : { name: decoded(username), password: decoded(password) };
  const deadLetterSubject = searchParams.get("dead");
  return async ({ leaseMs, maxNumDeliveries, logger }) => {
    const { createNatsJobSource } = await import("./nats-job-source.ts");
    const tls = protocol === "nats+tls:";
    const limits = { leaseMs, maxNumDeliveries, logger };
    return createNatsJobSource({ server: host, user, tls, stream, consumer, deadLetterSubject, ...limits });
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ConfigError(["JOB_SOURCE has a user or password with a % that is not encoded: write %25."]);
  }
}

function openPubSub(path: string, emulatorUrl: string | null): OpenJobSource {
  const [project, subscription, ...rest] = path.split("/");
  if (!project || !subscription || rest.length > 0) {
    const form =
      emulatorUrl === null ? "pubsub://project/subscription" : "pubsub+http://host:port/project/subscription";
    throw new ConfigError([`JOB_SOURCE names no project and subscription: write ${form}.`]);
  }
  return async ({ leaseMs, maxNumDeliveries, logger }) => {
    const { createPubSubJobSource } = await import("./pubsub-job-source.ts");
    return createPubSubJobSource({ project, subscription, emulatorUrl, leaseMs, maxNumDeliveries, logger });
  };
}

/** @throws ConfigError for an unknown kind or an incomplete address. */
export function readJobSource(address: string, runpod: RunpodSettings): OpenJobSource {
  const url = new URL(address);
  const scheme = url.protocol.slice(0, -1);
  const read = Object.hasOwn(kinds, scheme) ? kinds[scheme] : undefined;
  if (read === undefined) {
    const schemes = Object.keys(kinds).map((known) => `${known}://`);
    throw new ConfigError([`JOB_SOURCE starts with ${scheme}://; expected one of ${schemes.join(", ")}.`]);
  }
  return read(url, runpod);
}

/**
 * Rejects with ConfigError for a queue of SQS whose region neither its address, `awsRegion` nor the files of the AWS SDK
 * name: every call would fail.
 */
export async function requireRegion(address: string, awsRegion: string | null): Promise<void> {
  const url = new URL(address);
  if (!/^sqs(\+http)?:$/.test(url.protocol) || regionOfQueue(withScheme(url, "https"), awsRegion) !== undefined) return;
  const { namesRegion } = await import("./sqs-job-source.ts");
  if (await namesRegion()) return;
  throw new ConfigError([`JOB_SOURCE names no region of AWS (${url.host}): set AWS_REGION, for example to eu-west-1.`]);
}

function withScheme({ host, pathname }: URL, scheme: string): string {
  return `${scheme}://${host}${pathname}`;
}
