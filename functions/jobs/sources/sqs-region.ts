/** The region of a queue of SQS, without the client of SQS, which takes long to load. */

/** AWS accepts only calls that are signed for the region of the queue. `fallback` is for other servers. */
export function regionOfQueue(queueUrl: string, fallback: string | null): string | undefined {
  const { hostname } = new URL(queueUrl);
  return /(?:^|\.)sqs(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\./.exec(hostname)?.[1] ?? fallback ?? undefined;
}
