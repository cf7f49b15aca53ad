/** Addresses that jobs name, and the settings that allow them. */
import { expect, test } from "vitest";

import { isAllowed, readTarget } from "../../../functions/jobs/targets.ts";
import { isS3OrHttpUrl } from "../../../functions/settings/values.ts";

const toTarget = (text: string) => readTarget(text)!;

test.for([
  ["s3://bucket/answers", "s3://bucket/answers/a/b.json", true],
  ["s3://bucket/answers/", "s3://bucket/answers/a..b.json", true],
  ["s3://bucket", "s3://bucket/a", true],
  ["s3://bucket/answers", "s3://bucket/answers-2/a.json", false],
  ["s3://bucket/answers", "s3://other/answers/a.json", false],
  ["s3://bucket/answers", "s3://bucket/answers/../secrets/a.json", false],
  ["s3://bucket/answers", "s3://bucket/answers/./../a.json", false],
  ["https://host/hooks", "https://host/hooks/1?x=../y", true],
  ["https://host/hooks", "https://host/hooks/org%2Frepo", true],
  ["https://host/hooks", "https://host/hooks-2", false],
  ["https://host/hooks", "https://host:444/hooks/1", false],
  ["https://host/hooks", "http://host/hooks/1", false],
  ["https://host/hooks", "https://host/hooks/../admin", false],
  ["https://host/hooks", "https://host/hooks/%2e%2e/admin", false],
  ["https://host/hooks", "https://host/hooks/..%2fadmin", false],
  ["https://host/hooks", "https://host/hooks/%2e%2e%5cadmin", false],
  ["https://host/hooks", "https://host/hooks/%252e%252e/admin", false],
  ["https://host/hooks", "https://host/hooks/..%252fadmin", false],
  ["https://host/hooks", "https://host/hooks/..;/admin", false],
  ["https://host/hooks", "https://host/hooks/..;a=b/admin", false],
  ["https://host/hooks", "https://host/hooks/a;b/c%252Fd", true],
  ["https://host/hooks", "https://host.example/hooks/1", false],
  ["https://host/hooks", "http://169.254.169.254/hooks/latest/meta-data", false],
] as const)("%s allows %s: %s", ([allowed, target, expected]) => {
  expect(isAllowed(toTarget(target), [toTarget(allowed)])).toBe(expected);
});

test.for(["https://user:password@host/hooks", "ftp://host/hooks", "s3:///key", "file:///etc/passwd", "//host/hooks"])(
  "%s is no place for results",
  (text) => {
    expect(readTarget(text)).toBeNull();
  },
);

test.for([
  "s3://bucket",
  "s3://bucket/",
  "s3://bucket/a/b",
  "S3://bucket//a",
  "s3://bucket/my answers",
  "s3:///key",
  "https://host/hooks",
  "http://host",
  "https://user:password@host/hooks",
  "https://user@host/hooks",
  "https://",
  "ftp://host/hooks",
])("the settings accept %s if results can go there, and only then", (text) => {
  expect(isS3OrHttpUrl(text)).toBe(readTarget(text) !== null);
});
