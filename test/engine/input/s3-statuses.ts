/** What an object store answered. */
import type { S3Client } from "@aws-sdk/client-s3";

/** Records the statuses of the store's answers in order. */
export function recordStatuses(client: S3Client): number[] {
  const statuses: number[] = [];
  client.middlewareStack.add(
    (next) => async (input) => {
      const result = await next(input);
      statuses.push((result.response as { statusCode: number }).statusCode);
      return result;
    },
    { step: "deserialize", priority: "low" },
  );
  return statuses;
}
