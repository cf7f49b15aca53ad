/** What tells the results of jobs apart. */
import { createHash } from "node:crypto";

import type { LeasedJob } from "./job-source.ts";

export interface JobKey {
  readonly jobId: string;
  /**
   * SHA-256 in hexadecimal digits of the message, and of the time at which it was added where the queue numbers its jobs:
   * such ids start again when the queue is emptied, and other queues have the same ones.
   */
  readonly messageDigest: string;
}

/** The digest is computed when it is first read, because few places need it. */
export function jobKeyOf({ id, body, addedAt }: Pick<LeasedJob, "id" | "body" | "addedAt">): JobKey {
  let digest: string | null = null;
  return {
    jobId: id,
    get messageDigest() {
      const time = addedAt === undefined ? "" : `${addedAt}\n`;
      return (digest ??= createHash("sha256").update(time).update(body).digest("hex"));
    },
  };
}
