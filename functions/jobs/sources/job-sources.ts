/** Kinds of queues by the scheme of their address. A new one is a file of this folder and an entry here. */
import { ConfigError } from "../../settings/setting.ts";
import type { JobSource } from "../job-source.ts";

export interface JobSourceSettings {
  readonly leaseMs: number;
  /** Region of the AWS settings; null if the SDK finds it itself. */
  readonly awsRegion: string | null;
}

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
};

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
