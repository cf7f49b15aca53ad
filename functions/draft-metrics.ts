/** Metrics of speculative decoding, under vLLM's names. */
import { Counter } from "prom-client";
import type { Registry } from "prom-client";

import type { EngineCoreStats } from "../engine/index.ts";
import { addCounter } from "./scraped-metrics.ts";

type DraftStats = EngineCoreStats["drafts"];

/** Read from the engine at every scrape; without an engine, there are no values. */
export function addDraftMetrics(registry: Registry, drafts: () => DraftStats | undefined): void {
  const prefix = "vllm:spec_decode_num";
  addCounter(registry, `${prefix}_drafts_total`, "Drafts that were checked.", () => drafts()?.numDrafts);
  addCounter(registry, `${prefix}_draft_tokens_total`, "Tokens of these drafts.", () => drafts()?.numDraftTokens);
  addCounter(
    registry,
    `${prefix}_accepted_tokens_total`,
    "Tokens of drafts that the model sampled as well.",
    () => drafts()?.numAcceptedTokens,
  );
  registry.registerMetric(
    new Counter({
      name: `${prefix}_accepted_tokens_per_pos_total`,
      help: "Accepted tokens by their position in the draft, from 0.",
      labelNames: ["position"],
      registers: [],
      collect() {
        this.reset();
        for (const [position, count] of drafts()?.numAcceptedPerPosition.entries() ?? []) this.inc({ position }, count);
      },
    }),
  );
}
