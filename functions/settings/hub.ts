/** Settings of the Hugging Face Hub, under the names of huggingface_hub. */
import { setting } from "./setting.ts";
import { anyText, boolean, httpUrl, path } from "./values.ts";

export const hubSettings = {
  endpoint: setting("HF_ENDPOINT", httpUrl(), "URL of the Hugging Face Hub, or of a mirror.", {
    default: "https://huggingface.co",
  }),
  token: setting(
    "HF_TOKEN",
    anyText(),
    "Token for private and gated repositories; default: the content of HF_TOKEN_PATH.",
    {
      secret: true,
    },
  ),
  tokenFile: setting(
    "HF_TOKEN_PATH",
    path(),
    "File with a token, written by hf auth login; default: token in HF_HOME.",
  ),
  isOffline: setting("HF_HUB_OFFLINE", boolean(), "Use only repositories that are in the hub cache.", {
    default: false,
  }),
  home: setting(
    "HF_HOME",
    path(),
    "Folder of the hub cache and the token; default: huggingface in $XDG_CACHE_HOME or ~/.cache.",
  ),
  /** Null if it is below `home`. */
  cacheFolder: setting("HF_HUB_CACHE", path(), "Hub cache, shared with Python programs; default: hub in HF_HOME."),
};
