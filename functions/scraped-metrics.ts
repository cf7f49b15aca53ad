/** Metrics whose values are read at every scrape. */
import { Counter, Gauge } from "prom-client";
import type { Registry } from "prom-client";

/** Reads the current value; undefined counts as 0. */
export type ReadValue = () => number | undefined;

export function addGauge(registry: Registry, name: string, help: string, read: ReadValue): void {
  registry.registerMetric(
    new Gauge({
      name,
      help,
      registers: [],
      collect() {
        this.set(read() ?? 0);
      },
    }),
  );
}

/** `read` returns the total since the start of the process. */
export function addCounter(registry: Registry, name: string, help: string, read: ReadValue): void {
  registry.registerMetric(
    new Counter({
      name,
      help,
      registers: [],
      collect() {
        this.reset();
        this.inc(read() ?? 0);
      },
    }),
  );
}
