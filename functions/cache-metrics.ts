/** Metrics of the image caches by cache (processor, encoder, pixels, source) and tier (memory, redis). */
import { Counter, Gauge } from "prom-client";
import type { Registry } from "prom-client";

import type { CacheReport, CacheTierReport } from "../engine/index.ts";
import { addCounter } from "./scraped-metrics.ts";

type Stat = keyof CacheTierReport["stats"];

const counters: readonly (readonly [name: string, help: string, stat: Stat])[] = [
  ["queries", "Values looked up.", "queries"],
  ["hits", "Values found.", "hits"],
  ["errors", "Failed calls to the tier.", "errors"],
  ["refused_values", "Values found and rejected: written by another program, truncated or altered.", "refusedValues"],
  ["read_bytes", "Bytes of values read.", "readBytes"],
  ["written_bytes", "Bytes of values written.", "writtenBytes"],
];

/** Read from the report at every scrape; without a report, there are no values. */
export function addCacheMetrics(registry: Registry, readReport: () => CacheReport | null): void {
  const tiers = (): readonly CacheTierReport[] => readReport()?.tiers ?? [];
  for (const [name, help, stat] of counters) {
    registry.registerMetric(
      new Counter({
        name: `fovea_cache_${name}_total`,
        help,
        labelNames: ["cache", "tier"],
        registers: [],
        collect() {
          this.reset();
          for (const { cache, tier, stats } of tiers()) this.inc({ cache, tier }, stats[stat]);
        },
      }),
    );
  }
  registry.registerMetric(
    new Gauge({
      name: "fovea_cache_held_bytes",
      help: "Bytes of values currently in memory.",
      labelNames: ["cache"],
      registers: [],
      collect() {
        for (const { cache, tier, stats } of tiers()) if (tier === "memory") this.set({ cache }, stats.heldBytes);
      },
    }),
  );
  registry.registerMetric(
    new Gauge({
      name: "fovea_redis_available",
      help: "1 if Redis is used, else 0: a failed call ends its use until a probe succeeds.",
      labelNames: ["operation"],
      registers: [],
      collect() {
        const state = readReport()?.store ?? null;
        if (state === null) return;
        this.set({ operation: "read" }, Number(state.canRead));
        this.set({ operation: "write" }, Number(state.canWrite));
      },
    }),
  );
  addProcessorCacheMetrics(registry, tiers);
}

/** vLLM's two metrics, which count items whatever tier they come from. */
function addProcessorCacheMetrics(registry: Registry, tiers: () => readonly CacheTierReport[]): void {
  const processorTiers = () => tiers().filter(({ cache }) => cache === "processor");
  // A slower tier is asked only for values that the first one lacks.
  addCounter(
    registry,
    "vllm:mm_cache_queries_total",
    "Images looked up in the processor cache.",
    () => processorTiers()[0]?.stats.queries,
  );
  addCounter(registry, "vllm:mm_cache_hits_total", "Images found in the processor cache.", () =>
    processorTiers().reduce((sum, { stats }) => sum + stats.hits, 0),
  );
}
