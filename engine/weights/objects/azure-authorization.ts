/** How calls of Azure Blob Storage say who asks: with the account's key, a shared access signature, or an identity. */
import { createHmac } from "node:crypto";

import type { AzureConfig, AzureIdentityConfig } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import { createAzureTokens } from "./azure-tokens.ts";

export interface AzureAccount {
  readonly name: string;
  /** Without a slash at its end. */
  readonly blobUrl: string;
  readonly key: string | null;
  readonly sasToken: string | null;
}

export interface AzureAuthorization {
  readonly authorize: (url: URL, headers: Headers, signal: AbortSignal) => Promise<void>;
  readonly adviceForRejected: () => string;
}

/** @throws EngineError `invalid_configuration` */
export function readAzureAccount(reference: string, config: AzureConfig): AzureAccount {
  const { accountName, connectionString, accountKey, sasToken } = config;
  if (connectionString !== null) return readConnectionString(connectionString);
  if (accountName === null) {
    const message = `${reference} needs the name of a storage account, or a connection string.`;
    throw new EngineError("invalid_configuration", message, { setting: "azure" });
  }
  if (!/^[a-z0-9]{3,24}$/.test(accountName)) {
    const message = `The name of the storage account is ${accountName}: expected 3 to 24 small letters and digits.`;
    throw new EngineError("invalid_configuration", message, { setting: "azure" });
  }
  const blobUrl = `https://${accountName}.blob.core.windows.net`;
  return { name: accountName, blobUrl, key: accountKey, sasToken };
}

/** https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string */
function readConnectionString(text: string): AzureAccount {
  const fields = new Map(
    text.split(";").map((part) => {
      const [name = "", ...value] = part.split("=");
      return [name.trim().toLowerCase(), value.join("=").trim()];
    }),
  );
  const protocol = fields.get("defaultendpointsprotocol") ?? "https";
  const suffix = fields.get("endpointsuffix") ?? "core.windows.net";
  const accountName = fields.get("accountname");
  const endpoint = fields.get("blobendpoint") ?? `${protocol}://${accountName ?? ""}.blob.${suffix}`;
  const url = URL.canParse(endpoint) ? new URL(endpoint) : null;
  const isComplete = accountName !== undefined || fields.has("blobendpoint");
  if (!isComplete || url === null || !/^https?:$/.test(url.protocol)) {
    const message =
      "The connection string of the storage account cannot be read: expected AccountName and AccountKey, or BlobEndpoint " +
      "and SharedAccessSignature, separated by semicolons.";
    throw new EngineError("invalid_configuration", message, { setting: "azure" });
  }
  return {
    name: accountName ?? url.hostname.split(".")[0]!,
    blobUrl: url.href.replace(/\/+$/, ""),
    key: fields.get("accountkey") ?? null,
    sasToken: fields.get("sharedaccesssignature") ?? null,
  };
}

export function createAzureAuthorization(account: AzureAccount, identity: AzureIdentityConfig): AzureAuthorization {
  const { name, key, sasToken } = account;
  if (key !== null) {
    return {
      authorize: async (url, headers) =>
        headers.set("authorization", `SharedKey ${name}:${signWithKey(url, headers, name, key)}`),
      adviceForRejected: () => `Check the key of the account ${name}, and the clock of this machine.`,
    };
  }
  if (sasToken !== null) {
    const query = [...new URLSearchParams(sasToken.replace(/^\?/, ""))];
    return {
      authorize: async (url) => query.forEach(([field, value]) => url.searchParams.set(field, value)),
      adviceForRejected: () =>
        "The shared access signature needs the rights to read and to list, and may have expired.",
    };
  }
  const tokens = createAzureTokens(identity);
  let isAnonymous = false;
  return {
    async authorize(_, headers, signal) {
      const token = await tokens.get(signal);
      isAnonymous = token === null;
      if (token !== null) headers.set("authorization", `Bearer ${token}`);
    },
    adviceForRejected: () =>
      isAnonymous
        ? "There are no credentials: give a key or a shared access signature, or run under a managed identity."
        : `The identity needs the role Storage Blob Data Reader on the account ${name}.`,
  };
}

/** Empty in a GET without a body: Content-Encoding, -Language, -Length, -MD5, -Type and Date. */
const unusedHeaders = ["", "", "", "", "", ""];
const signedHeaders = ["if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"];

/**
 * The signature of a GET. Source: "Authorize with Shared Key" in the reference of Azure Storage's REST API.
 *
 * @param key Base64.
 */
export function signWithKey(url: URL, headers: Headers, accountName: string, key: string): string {
  // Headers come sorted.
  const ownHeaders = [...headers].filter(([name]) => name.startsWith("x-ms-"));
  const query = new URLSearchParams(url.search);
  query.sort();
  const text = [
    "GET",
    ...unusedHeaders,
    ...signedHeaders.map((name) => headers.get(name) ?? ""),
    ...ownHeaders.map(([name, value]) => `${name}:${value}`),
    `/${accountName}${url.pathname}${[...query].map(([name, value]) => `\n${name.toLowerCase()}:${value}`).join("")}`,
  ].join("\n");
  return createHmac("sha256", Buffer.from(key, "base64")).update(text, "utf8").digest("base64");
}
