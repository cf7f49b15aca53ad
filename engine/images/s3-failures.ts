/** Which failed calls of the AWS SDK may succeed later although no one changes anything. */

/** Of credentials that the SDK renews, whose status is 400 or 403. */
const expiredNames: ReadonlySet<string> = new Set(["ExpiredToken", "ExpiredTokenException", "RequestExpired"]);
/** Statuses below 500 that say nothing about the call. */
const passingStatuses: ReadonlySet<number> = new Set([408, 429]);

/** The SDK's own error for a client without a region, which has no distinct name. */
export function isWithoutRegion(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith("Region is missing");
}

/** Errors without a status are those of connections and of credentials that could not be fetched. */
export function isPassingS3Failure(error: unknown): boolean {
  if (!(error instanceof Error) || isWithoutRegion(error)) return false;
  const { httpStatusCode: status = 500 } = ("$metadata" in error ? error.$metadata : {}) as {
    readonly httpStatusCode?: number;
  };
  return status >= 500 || passingStatuses.has(status) || expiredNames.has(error.name);
}
