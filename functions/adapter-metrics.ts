/** The gauge of vLLM by which gateways find the servers that compute an adapter at present. */
import { Gauge } from "prom-client";
import type { Registry } from "prom-client";

import type { Service } from "./service.ts";

/** Its value is the time of the scrape in seconds, and its labels say the rest. Without adapters, it has no value. */
export function addAdapterMetric(registry: Registry, service: Service): void {
  registry.registerMetric(
    new Gauge({
      name: "vllm:lora_requests_info",
      help: "Names of the LoRA adapters that running and waiting requests have chosen.",
      labelNames: ["max_lora", "running_lora_adapters", "waiting_lora_adapters"],
      registers: [],
      collect() {
        this.reset();
        const { engine } = service;
        const names = engine?.modelInfo?.adapters;
        if (engine == null || names === undefined) return;
        const { running, waiting } = engine.stats.adapters;
        const listed = (ids: readonly number[]): string => ids.map((id) => names[id - 1]).join(",");
        const labels = {
          max_lora: names.length,
          running_lora_adapters: listed(running),
          waiting_lora_adapters: listed(waiting),
        };
        this.set(labels, Date.now() / 1000);
      },
    }),
  );
}
