/** Describes why S3 failed: one line that names the fault, and what to do. */
import type { Config } from "../settings/config.ts";
import { StorageError } from "../storage/object-store.ts";

export interface S3Failure {
  readonly reason: string;
  readonly advice: string;
}

const credentialsAdvice =
  "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role.";
const regionAdvice = "Set AWS_REGION to the region of the bucket.";
const permissionsAdvice =
  "Grant s3:GetObject on the input, and s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on the output and <output>.parts/*, and s3:ListBucket on both buckets.";

/** By the code of S3's answer, or the name of the SDK's error. */
const adviceOf: Readonly<Record<string, string>> = {
  NoSuchBucket: "Correct the bucket's name, or create the bucket.",
  AccessDenied: permissionsAdvice,
  Forbidden: permissionsAdvice,
  PermanentRedirect: regionAdvice,
  AuthorizationHeaderMalformed: regionAdvice,
  CredentialsProviderError: credentialsAdvice,
  InvalidAccessKeyId: credentialsAdvice,
  SignatureDoesNotMatch: credentialsAdvice,
  ExpiredToken: "Renew the credentials, and run the command again.",
  PreconditionFailed: "The input changed during the run. Run the command again.",
};

/** Null for an error that is not about S3. */
export function describeS3Failure(error: unknown, { s3 }: Pick<Config, "s3">): S3Failure | null {
  if (!(error instanceof StorageError)) return null;
  const cause = error.cause instanceof Error ? error.cause : null;
  const endpoint = s3.endpoint ?? "Amazon S3";
  const advice =
    // The SDK's own errors, which have no distinct name.
    /^Region (is missing|not accepted)/.test(cause?.message ?? "")
      ? regionAdvice
      : (adviceOf[cause?.name ?? ""] ?? `Check that ${endpoint} can be reached, and run the command again.`);
  const name = cause === null || cause.name === "Error" ? "" : ` (${cause.name})`;
  return { reason: `${error.message.replaceAll(/\s+/g, " ").replace(/\.$/, "")}${name}`, advice };
}
