/** Environments of attacked services: small limits, so that attacks reach them soon, and separate folders. */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { Surroundings } from "./attack.ts";

/** A public service, with its batches in a folder. */
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
      // Nothing listens there, so no request leaves this machine.
      AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1",
      AWS_ACCESS_KEY_ID: "attacks",
      AWS_SECRET_ACCESS_KEY: "attacks",
      ...environment,
    },
    secrets: [folder.path],
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  };
}

/** A unique text. */
export function createSecret(kind: string): string {
  return `${kind}-${randomBytes(12).toString("hex")}`;
}

/** Logits processors and image embeddings are on, so that all fields of requests have an effect. */
export function prepareForBodies(): Promise<Surroundings> {
  return openSurroundings({
    ENABLE_MM_EMBEDS: "true",
    LOGITS_PROCESSOR_PATH: fileURLToPath(new URL("../../examples", import.meta.url)),
    LOGITS_PROCESSORS: "steering.target-token:TargetToken,steering.wrapped-target-token:WrappedTargetToken",
  });
}

/** For bodies and files, low enough that exceeding it costs little. */
export const HTTP_LIMIT_BYTES = 2 ** 20;

/** Other origins are allowed, and limits of bodies and files are low. */
export function prepareForHttp(): Promise<Surroundings> {
  return openSurroundings({
    ALLOWED_ORIGINS: "https://friend.example",
    MAX_BODY_BYTES: String(HTTP_LIMIT_BYTES),
    BATCH_MAX_FILE_BYTES: String(HTTP_LIMIT_BYTES),
  });
}
