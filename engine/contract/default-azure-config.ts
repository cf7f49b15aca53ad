/** Azure Blob Storage without settings: no account, and the addresses that all of Azure's public cloud has. */
import type { AzureConfig } from "./config.ts";

export const defaultAzureConfig: AzureConfig = {
  accountName: null,
  connectionString: null,
  accountKey: null,
  sasToken: null,
  identity: {
    tenantId: null,
    clientId: null,
    clientSecret: null,
    federatedTokenFile: null,
    authorityHost: "https://login.microsoftonline.com",
    platformEndpoint: null,
    platformSecret: null,
    // The same on every virtual machine, and not routed beyond it.
    metadataUrl: "http://169.254.169.254",
  },
};
