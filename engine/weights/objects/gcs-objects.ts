/**
 * Objects on Google Cloud Storage, by its JSON API (https://cloud.google.com/storage/docs/json_api/v1). Google's own
 * client needs 57 packages for these two calls; its authentication library is enough.
 */
import { GoogleAuth } from "google-auth-library";
import { z } from "zod";

import { EngineError } from "../../contract/errors.ts";
import type { ObjectLocation } from "../../contract/model-reference.ts";
import { getPage, readObjectRange } from "./http-objects.ts";
import type { ObjectService } from "./http-objects.ts";
import { requireFewObjects } from "./remote-objects.ts";
import type { RemoteObject, RemoteObjects } from "./remote-objects.ts";

const googleUrl = "https://storage.googleapis.com";
/** The library exports no name for this error. */
const noCredentials = "Could not load the default credentials";
const scopes = ["https://www.googleapis.com/auth/devstorage.read_only"];

const listAnswer = z.object({
  items: z
    .array(
      z.object({
        name: z.string(),
        size: z.string().regex(/^\d{1,15}$/),
        generation: z.string().regex(/^\d+$/),
        /** Composite objects have none. */
        md5Hash: z.string().optional(),
        crc32c: z.string().optional(),
        contentEncoding: z.string().optional(),
      }),
    )
    .optional(),
  /** Folders, with a slash at the end. */
  prefixes: z.array(z.string()).optional(),
  nextPageToken: z.string().optional(),
});

const errorAnswer = z.object({
  error: z.object({ message: z.string(), errors: z.array(z.object({ reason: z.string() })).optional() }),
});

export interface GcsOptions {
  /** Default: Google's. */
  readonly url?: string;
  /** Whether calls carry no credentials, as emulators expect. */
  readonly isAnonymous: boolean;
}

export function createGcsObjects(
  { bucket, prefix }: ObjectLocation,
  { url: serviceUrl = googleUrl, isAnonymous }: GcsOptions,
): RemoteObjects {
  const reference = `gs://${bucket}/${prefix}`;
  const objectsUrl = `${serviceUrl.replace(/\/+$/, "")}/storage/v1/b/${encodeURIComponent(bucket)}/o`;
  const service = createService(isAnonymous);
  return {
    reference,
    async list(folder, signal) {
      const folderPrefix = folder === "" ? prefix : `${prefix}${folder}/`;
      const what = `gs://${bucket}/${folderPrefix} cannot be listed`;
      const url = new URL(objectsUrl);
      url.searchParams.set("prefix", folderPrefix);
      url.searchParams.set("delimiter", "/");
      url.searchParams.set(
        "fields",
        "items(name,size,generation,md5Hash,crc32c,contentEncoding),prefixes,nextPageToken",
      );
      const files: RemoteObject[] = [];
      const folders = new Set<string>();
      for (let token: string | undefined = ""; token !== undefined;) {
        if (token !== "") url.searchParams.set("pageToken", token);
        const page = parsePage(await getPage(service, what, url, signal), what);
        for (const { name: key, size, generation, md5Hash, crc32c, contentEncoding = "" } of page.items ?? []) {
          const name = key.slice(folderPrefix.length);
          const checksum = checksumOf(md5Hash, crc32c);
          const optional = { ...(checksum && { checksum }), ...(contentEncoding !== "" && { contentEncoding }) };
          files.push({ key, name, byteLength: Number(size), eTag: generation, ...optional });
        }
        for (const each of page.prefixes ?? []) folders.add(each.slice(folderPrefix.length, -1));
        requireFewObjects(`gs://${bucket}/${folderPrefix}`, files.length + folders.size);
        token = page.nextPageToken;
      }
      return { files, folders };
    },
    createReader(object) {
      const url = new URL(`${objectsUrl}/${encodeURIComponent(object.key)}`);
      url.searchParams.set("alt", "media");
      url.searchParams.set("ifGenerationMatch", object.eTag);
      const address = { name: `gs://${bucket}/${object.key}`, url };
      return (start, end, signal) => readObjectRange(service, address, object, start, end, signal);
    },
  };
}

function checksumOf(md5: string | undefined, crc32c: string | undefined): RemoteObject["checksum"] {
  if (md5 !== undefined) return { algorithm: "md5", value: md5 };
  return crc32c === undefined ? undefined : { algorithm: "crc32c", value: crc32c };
}

function parsePage(text: string, what: string): z.output<typeof listAnswer> {
  try {
    return listAnswer.parse(JSON.parse(text));
  } catch (cause) {
    const message = `${what}: the answer is not one of Google Cloud Storage; check the address of the emulator.`;
    throw new EngineError("invalid_configuration", message, { cause, setting: "gcsEmulatorUrl" });
  }
}

/** The Google libraries' order of credentials. Without any, calls are anonymous, which is enough for public buckets. */
function createService(isEmulator: boolean): ObjectService {
  const auth = new GoogleAuth({ scopes });
  let isAnonymous = isEmulator;
  return {
    async authorize(url, headers) {
      if (isAnonymous) return;
      try {
        const credentials = await auth.getRequestHeaders(url.href);
        for (const [name, value] of credentials) headers.set(name, value);
      } catch (cause) {
        const { message } = cause as Error;
        isAnonymous = message.startsWith(noCredentials);
        if (isAnonymous) return;
        throw new EngineError("invalid_configuration", `Google's credentials cannot be used: ${message}.`, { cause });
      }
    },
    errorCodeOf(_, body) {
      try {
        const { error } = errorAnswer.parse(JSON.parse(body));
        return error.message;
      } catch {
        // Downloads answer with plain text.
        return body.length < 500 ? body.trim() : "";
      }
    },
    adviceForRejected: () =>
      isAnonymous
        ? "There are no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS, or run under a service account."
        : "The service account needs storage.objects.list and storage.objects.get (role Storage Object Viewer).",
  };
}
