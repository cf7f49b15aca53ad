import { expect, test } from "vitest";

import { isPassingS3Failure } from "../../../engine/images/s3-failures.ts";

const failure = (name: string, httpStatusCode?: number): Error =>
  Object.assign(new Error(name), { name, ...(httpStatusCode !== undefined && { $metadata: { httpStatusCode } }) });

test.for<[string, unknown, boolean]>([
  ["a connection that breaks off", failure("ECONNRESET"), true],
  ["a server that fails", failure("InternalError", 500), true],
  ["a server that is busy", failure("SlowDown", 503), true],
  ["too many calls", failure("TooManyRequests", 429), true],
  ["a token that has expired", failure("ExpiredToken", 400), true],
  ["an object that does not exist", failure("NoSuchKey", 404), false],
  ["a lack of permission", failure("AccessDenied", 403), false],
  ["a client without a region", new Error("Region is missing"), false],
  ["a value that is no error", "failed", false],
])("%s", ([, error, isPassing]) => {
  expect(isPassingS3Failure(error)).toBe(isPassing);
});
