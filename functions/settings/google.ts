/** Settings of Google Cloud Storage, and names that Google's authentication library reads by itself. */
import { setting } from "./setting.ts";
import { anyText, httpUrl } from "./values.ts";

export const gcsSettings = {
  emulatorUrl: setting(
    "STORAGE_EMULATOR_HOST",
    httpUrl(),
    "URL of an emulator of Google Cloud Storage, which is called without credentials.",
  ),
};

/** Listed so that it is a known name. The service does not read it. */
export const googleLibrarySettings = {
  credentials: setting(
    "GOOGLE_APPLICATION_CREDENTIALS",
    anyText(),
    "Read by Google's library: file with credentials for gs:// and Pub/Sub; default: those of the machine.",
  ),
};
