/** Settings of Azure Blob Storage and Microsoft Entra, under the names that Azure's tools and platforms use. */
import { defaultAzureConfig } from "../../engine/contract/default-azure-config.ts";
import { setting } from "./setting.ts";
import { anyText, httpUrl, path } from "./values.ts";

export const azureSettings = {
  accountName: setting("AZURE_STORAGE_ACCOUNT_NAME", anyText(), "Storage account of az:// checkpoints."),
  connectionString: setting(
    "AZURE_STORAGE_CONNECTION_STRING",
    anyText(),
    "Account and credentials in one, for other clouds and emulators too.",
    { secret: true },
  ),
  accountKey: setting("AZURE_STORAGE_KEY", anyText(), "Key of the storage account.", { secret: true }),
  sasToken: setting("AZURE_STORAGE_SAS_TOKEN", anyText(), "Shared access signature with the rights to read and list.", {
    secret: true,
  }),
  identity: {
    tenantId: setting("AZURE_TENANT_ID", anyText(), "Microsoft Entra: tenant of the application or workload."),
    clientId: setting(
      "AZURE_CLIENT_ID",
      anyText(),
      "Microsoft Entra: the application or workload, or one of several managed identities.",
    ),
    clientSecret: setting("AZURE_CLIENT_SECRET", anyText(), "Microsoft Entra: secret of the application.", {
      secret: true,
    }),
    federatedTokenFile: setting(
      "AZURE_FEDERATED_TOKEN_FILE",
      path(),
      "Microsoft Entra: file with the token of a workload; AKS sets it.",
    ),
    authorityHost: setting("AZURE_AUTHORITY_HOST", httpUrl(), "Microsoft Entra: its address; AKS sets it.", {
      default: defaultAzureConfig.identity.authorityHost,
    }),
    platformEndpoint: setting("IDENTITY_ENDPOINT", httpUrl(), "Set by Azure Container Apps with a managed identity."),
    platformSecret: setting("IDENTITY_HEADER", anyText(), "Set by Azure Container Apps, beside IDENTITY_ENDPOINT.", {
      secret: true,
    }),
  },
};
