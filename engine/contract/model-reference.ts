/** The forms in which a checkpoint can be named: a folder, an address in an object store, or a repository of the hub. */

export interface HubRepository {
  /** `org/name`. */
  readonly repository: string;
  /** A branch, a tag, a commit or `refs/pr/1`. */
  readonly revision: string;
  /** Whether a folder of this name would be used instead. */
  readonly yieldsToFolder: boolean;
}

export interface ObjectLocation {
  /** On Azure, the container. */
  readonly bucket: string;
  /** Empty or ends in "/". */
  readonly prefix: string;
}

/** S3, Google Cloud Storage and Azure Blob Storage, by the schemes of their addresses. */
export const objectSchemes = ["s3", "gs", "az"] as const;
/** For errors. */
export const objectAddressForms = "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";
export type ObjectScheme = (typeof objectSchemes)[number];

export type ModelReference =
  | { readonly kind: "folder"; readonly path: string }
  | ({ readonly kind: ObjectScheme } & ObjectLocation)
  | ({ readonly kind: "hub" } & HubRepository);

const defaultRevision = "main";

/** Names on the hub have letters, digits, `-`, `_` and `.`, and begin and end with none of the marks. */
const hubName = String.raw`\w(?:[\w.-]{0,94}\w)?`;
const hubReference = new RegExp(`^(hf://)?(${hubName}/${hubName})(?:@([^@]+))?/?$`, "i");
/** Git's names without the characters that a path or a URL would read differently. */
const revisionName = /^\w[\w.+-]*(\/\w[\w.+-]*)*$/;

/**
 * Reads the form of a reference; looks at no file. Returns null for a scheme that is not known and for a malformed
 * reference. A name like `org/name` is a repository here, and the caller looks for a folder first.
 */
export function parseModelReference(text: string): ModelReference | null {
  for (const scheme of objectSchemes) {
    if (text.toLowerCase().startsWith(`${scheme}://`)) return parseObjectReference(text, scheme);
  }
  const match = hubReference.exec(text);
  if (match !== null) {
    const [, scheme, repository, revision = defaultRevision] = match;
    if (!revisionName.test(revision) || /--|\.\./.test(repository!) || revision.includes("..")) return null;
    return { kind: "hub", repository: repository!, revision, yieldsToFolder: scheme === undefined };
  }
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? null : { kind: "folder", path: text };
}

function parseObjectReference(text: string, kind: ObjectScheme): ModelReference | null {
  const [bucket = "", ...path] = text.slice(`${kind}://`.length).split("/");
  if (bucket === "") return null;
  const prefix = path.join("/").replace(/\/+$/, "");
  return { kind, bucket, prefix: prefix === "" ? "" : `${prefix}/` };
}
