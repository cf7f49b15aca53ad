/** Which NVIDIA GPU an engine uses. */
import type { EngineConfig } from "./config.ts";

/** The number of the NVIDIA GPU that the settings want; null if nothing computes on one. */
export function cudaDeviceIdOf({
  device,
  visionDevice,
  deviceId,
}: Pick<EngineConfig, "device" | "visionDevice" | "deviceId">): number | null {
  return device === "cuda" || visionDevice === "cuda" ? deviceId : null;
}
