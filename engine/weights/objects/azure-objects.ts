/**
 * Blobs on Azure, by the REST API (https://learn.microsoft.com/rest/api/storageservices). Azure's own clients take 87 MB
 * in 66 packages for these two calls.
 */
import type { AzureConfig } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import type { ObjectLocation } from "../../contract/model-reference.ts";
import { createAzureAuthorization, readAzureAccount } from "./azure-authorization.ts";
import { getPage, readObjectRange } from "./http-objects.ts";
import type { ObjectService } from "./http-objects.ts";
import { requireFewObjects } from "./remote-objects.ts";
import type { RemoteObject, RemoteObjects } from "./remote-objects.ts";

/** Old enough for every cloud and emulator; newer ones change nothing for these calls. */
const apiVersion = "2023-11-03";
const MAX_BLOBS_PER_PAGE = 1000;

/** @throws EngineError `invalid_configuration` if the settings name no account. */
export function createAzureObjects({ bucket, prefix }: ObjectLocation, config: AzureConfig): RemoteObjects {
  const reference = `az://${bucket}/${prefix}`;
  const account = readAzureAccount(reference, config);
  const containerUrl = `${account.blobUrl}/${encodeURIComponent(bucket)}`;
  const authorization = createAzureAuthorization(account, config.identity);
  const service: ObjectService = {
    async authorize(url, headers, signal) {
      headers.set("x-ms-version", apiVersion);
      headers.set("x-ms-date", new Date().toUTCString());
      await authorization.authorize(url, headers, signal);
    },
    errorCodeOf: (headers, body) => headers.get("x-ms-error-code") ?? textOf(body, "Code") ?? "",
    adviceForRejected: authorization.adviceForRejected,
  };
  return {
    reference,
    async list(folder, signal) {
      const folderPrefix = folder === "" ? prefix : `${prefix}${folder}/`;
      const what = `az://${bucket}/${folderPrefix} in ${account.blobUrl} cannot be listed`;
      const url = new URL(containerUrl);
      const query = { restype: "container", comp: "list", prefix: folderPrefix, delimiter: "/" };
      for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
      url.searchParams.set("maxresults", String(MAX_BLOBS_PER_PAGE));
      const files: RemoteObject[] = [];
      const folders = new Set<string>();
      for (let marker = ""; ;) {
        if (marker !== "") url.searchParams.set("marker", marker);
        const page = await getPage(service, what, url, signal);
        if (!page.includes("<EnumerationResults")) {
          const message = `${what}: the answer is not one of Azure Blob Storage; check the account's endpoint.`;
          throw new EngineError("invalid_configuration", message);
        }
        files.push(...readBlobs(page, folderPrefix));
        for (const name of readFolders(page, folderPrefix)) folders.add(name);
        requireFewObjects(`az://${bucket}/${folderPrefix}`, files.length + folders.size);
        marker = textOf(page, "NextMarker") ?? "";
        if (marker === "") return { files, folders };
      }
    },
    createReader(object) {
      const path = object.key.split("/").map(encodeURIComponent).join("/");
      const headers = { "if-match": object.eTag };
      const address = { name: `az://${bucket}/${object.key}`, url: new URL(`${containerUrl}/${path}`), headers };
      return (start, end, signal) => readObjectRange(service, address, object, start, end, signal);
    },
  };
}

function readFolders(page: string, folderPrefix: string): string[] {
  return [...page.matchAll(/<BlobPrefix>(.*?)<\/BlobPrefix>/gs)].flatMap(([, prefix]) => {
    const name = textOf(prefix!, "Name");
    return name === null ? [] : [name.slice(folderPrefix.length, -1)];
  });
}

/** Blobs whose names XML cannot spell are left out; no file of a checkpoint has such a name. */
function readBlobs(page: string, folderPrefix: string): RemoteObject[] {
  return [...page.matchAll(/<Blob>(.*?)<\/Blob>/gs)].flatMap(([, blob]) => {
    const key = textOf(blob!, "Name");
    const eTag = textOf(blob!, "Etag");
    const byteLength = textOf(blob!, "Content-Length");
    if (key === null || eTag === null || byteLength === null || !/^\d{1,15}$/.test(byteLength)) return [];
    const md5 = textOf(blob!, "Content-MD5") ?? "";
    const contentEncoding = textOf(blob!, "Content-Encoding") ?? "";
    return [
      {
        key,
        name: key.slice(folderPrefix.length),
        byteLength: Number(byteLength),
        // Azure lists it without the quotes that a header needs.
        eTag: `"${eTag.replaceAll('"', "")}"`,
        ...(md5 !== "" && { checksum: { algorithm: "md5", value: md5 } as const }),
        ...(contentEncoding !== "" && { contentEncoding }),
      },
    ];
  });
}

const entities: Readonly<Record<string, string>> = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" };

/** The text of the first element of this name, which has no attributes and no elements in it; null if there is none. */
function textOf(xml: string, element: string): string | null {
  const text = new RegExp(`<${element}>([^<]*)</${element}>`).exec(xml)?.[1];
  if (text === undefined) return null;
  return text.replaceAll(/&(?:#(\d+)|#x([\da-f]+)|(\w+));/gi, (whole, decimal, hexadecimal, name) => {
    if (name !== undefined) return entities[name] ?? whole;
    return String.fromCodePoint(decimal === undefined ? Number.parseInt(hexadecimal, 16) : Number(decimal));
  });
}
