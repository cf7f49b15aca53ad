/** Returns memory to the system while the service has no requests. */
import { releaseUnusedMemory } from "../engine/index.ts";
import type { Service } from "./service.ts";

/** Longer than idle threads for pictures and bodies stay (30 s), so that their memory is returned too. */
export const IDLE_MS = 40_000;

/** Calls `release` once after each time of `IDLE_MS` without a request, until the service drains. */
export function releaseMemoryWhenIdle(service: Service, release: () => Promise<void> = releaseUnusedMemory): void {
  const timer = setTimeout(() => {
    if (service.isIdle) void release();
  }, IDLE_MS);
  timer.unref();
  const restart = async (): Promise<void> => {
    while (!service.drainSignal.aborted) {
      await service.whenReleased();
      timer.refresh();
    }
  };
  void restart();
  service.drainSignal.addEventListener("abort", () => clearTimeout(timer), { once: true });
}
