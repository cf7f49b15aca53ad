/** Metrics of speculative decoding, under vLLM's names. */
import { Counter } from "prom-client";
import type { Registry } from "prom-client";

import type { EngineCoreStats } from "../engine/index.ts";

type DraftStats = EngineCoreStats["drafts"];

/** Read from the engine at every scrape; without an engine, there are no values. */
export function addDraftMetrics(registry: Registry, drafts: () => DraftStats | undefined): void {
  const add = (name: string, help: string, read: (stats: DraftStats) => number): void =>
    registry.registerMetric(
      new Counter({
        name: `vllm:spec_decode_${name}_total`,
        help,
        registers: [],
        collect() {
          const stats = drafts();
          this.reset();
          this.inc(stats === undefined ? 0 : read(stats));
        },
      }),
    );
  add("num_drafts", "Drafts that were checked.", ({ numDrafts }) => numDrafts);
  add("num_draft_tokens", "Tokens of these drafts.", ({ numDraftTokens }) => numDraftTokens);
  add(
    "num_accepted_tokens",
    "Tokens of drafts that the model sampled as well.",
    ({ numAcceptedTokens }) => numAcceptedTokens,
  );
  registry.registerMetric(
    new Counter({
      name: "vllm:spec_decode_num_accepted_tokens_per_pos_total",
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
