/** What the services of attacks run with: small limits, so that attacks reach them soon, and folders of their own. */
import { randomBytes } from "node:crypto";
import { join } from "node:path";

import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { Surroundings } from "./attack.ts";

/** A service for everybody, with its batches in a folder. */
export async function openSurroundings(environment: Readonly<Record<string, string>> = {}): Promise<Surroundings> {
  const folder = await createTemporaryFolder();
  return {
    environment: {
      MAX_MODEL_LEN: "256",
      MAX_NUM_SEQS: "16",
      MAX_NUM_WAITING: "256",
      MM_PROCESSOR_CACHE_GB: "0.02",
      IMAGE_FETCH_TIMEOUT_SECONDS: "0.5",
      BATCH_STORE: join(folder.path, "batches"),
      CACHE_FOLDER: join(folder.path, "cache"),
      // Nobody listens there: no request leaves this machine.
      AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1",
      AWS_ACCESS_KEY_ID: "attacks",
      AWS_SECRET_ACCESS_KEY: "attacks",
      ...environment,
    },
    secrets: [folder.path],
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  };
}

/** A text that is nowhere else. */
export function createSecret(kind: string): string {
  return `${kind}-${randomBytes(12).toString("hex")}`;
}
