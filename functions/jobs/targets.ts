/** Addresses of results: prefixes of S3 buckets and webhooks. */

export interface S3Location {
  readonly kind: "s3";
  readonly bucket: string;
  /** Of an object, or the prefix of several. Without a slash at its start; may be empty. */
  readonly key: string;
}

export interface WebhookAddress {
  readonly kind: "webhook";
  readonly url: string;
}

export type Target = S3Location | WebhookAddress;

/** Null for text that is neither `s3://bucket/key` nor an http(s) URL without credentials. */
export function readTarget(text: string): Target | null {
  const s3 = /^s3:\/\/([^/\s]+)(?:\/+(\S*))?$/i.exec(text);
  if (s3 !== null) return { kind: "s3", bucket: s3[1]!, key: s3[2] ?? "" };
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return null;
  const { username, password, href } = new URL(text);
  return username === "" && password === "" ? { kind: "webhook", url: href } : null;
}

/**
 * Null for text that is not `s3://bucket/key` of an object, whose key may have spaces. A key with a slash at its end is
 * the name of a folder.
 */
export function readObject(text: string): S3Location | null {
  const [, bucket, key = ""] = /^s3:\/\/([^/\s]+)\/+(.*)$/is.exec(text) ?? [];
  return bucket === undefined || key === "" || key.endsWith("/") ? null : { kind: "s3", bucket, key };
}

/**
 * Whether `allowed` contains the target. An S3 prefix contains the objects below it, and a webhook all URLs of its
 * origin whose paths start with its path. A path that a server may take to lead out of its folder is in none.
 */
export function isAllowed(target: Target, allowed: readonly Target[]): boolean {
  // Some servers decode a path twice, and some leave out what follows a semicolon in a segment.
  const path = target.kind === "s3" ? target.key : percentDecode(percentDecode(new URL(target.url).pathname));
  if (path.split(/[/\\]/).some((segment) => /^\.\.?(?:;|$)/.test(segment))) return false;
  return allowed.some((entry) => {
    if (entry.kind === "s3") {
      if (target.kind !== "s3" || target.bucket !== entry.bucket) return false;
      const prefix = entry.key.replace(/\/+$/, "");
      return prefix === "" || target.key === prefix || target.key.startsWith(`${prefix}/`);
    }
    if (target.kind !== "webhook") return false;
    const [url, prefix] = [new URL(target.url), new URL(entry.url)];
    const path = prefix.pathname.replace(/\/+$/, "");
    return url.origin === prefix.origin && (url.pathname === path || url.pathname.startsWith(`${path}/`));
  });
}

function percentDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function describeTarget(target: Target): string {
  if (target.kind === "s3") return `s3://${target.bucket}/${target.key}`;
  const { origin, pathname } = new URL(target.url);
  return origin + pathname;
}
