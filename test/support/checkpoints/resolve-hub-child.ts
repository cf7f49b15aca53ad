/** Downloads a repository of a hub in a process of its own: `node resolve-hub-child.ts REFERENCE HUB_JSON CACHE_FOLDER`. */
import type { HubConfig } from "../../../engine/contract/config.ts";
import { resolveCheckpoint } from "../../../engine/weights/resolve-checkpoint.ts";

const [reference, hub, cacheFolder] = process.argv.slice(2);
const folder = await resolveCheckpoint(reference!, { hub: JSON.parse(hub!) as HubConfig, cacheFolder: cacheFolder! });
process.stdout.write(folder);
