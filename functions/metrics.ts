/**
 * Prometheus metrics. Metrics that vLLM has too have vLLM's name (`vllm:…`), because autoscaling recipes (KEDA, KServe)
 * use those names. The others are `fovea_…`, `http_…` and prom-client's process metrics.
 */
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from "prom-client";

import type { FinishReason } from "../engine/index.ts";
import { addAdapterMetric } from "./adapter-metrics.ts";
import { finalStatuses } from "./batch/batch-record.ts";
import type { FinalStatus, RemovedKind } from "./batch/batch-record.ts";
import { addCacheMetrics } from "./cache-metrics.ts";
import { addDraftMetrics } from "./draft-metrics.ts";
import type { BodyIntake } from "./http/body-intake.ts";
import type { RequestPaths } from "./http/wire-parameter.ts";
import type { JobOutcome } from "./jobs/job-source.ts";
import { addCounter, addGauge } from "./scraped-metrics.ts";
import type { Service } from "./service.ts";
import { StartTimes } from "./start-times.ts";

/** The amounts that a finished or abandoned sequence adds to the counters. */
interface SequenceFigures {
  /** Index of the choice; a shared prompt counts with the first choice. */
  readonly index: number;
  readonly numPromptTokens: number;
  readonly numImageTokens: number;
  readonly numVideoTokens?: number;
  readonly numOutputTokens: number;
  readonly finishReason: FinishReason;
}

export interface MetricReading {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly values: readonly {
    readonly value: number;
    readonly labels: Readonly<Record<string, string | number>>;
    /** In a histogram: `name_bucket`, `name_sum` or `name_count`. */
    readonly metricName?: string;
  }[];
}

export interface Metrics {
  readonly contentType: string;
  /** The text that Prometheus scrapes. */
  render(): Promise<string>;
  /** The same as numbers. */
  read(): Promise<readonly MetricReading[]>;
  observeHttpRequest(route: string, method: string, status: number, seconds: number): void;
  observeTimeToFirstToken(seconds: number): void;
  /** `numTokens` tokens arrived together, `seconds` after the previous ones. */
  observeTokens(seconds: number, numTokens: number): void;
  observeSequence(figures: SequenceFigures, seconds: number): void;
  /** The images, videos and documents of a request. */
  addMedia(paths: Pick<RequestPaths, "images" | "videos" | "documents">): void;
  /** A batch has ended. */
  countBatch(status: FinalStatus): void;
  /** A line of a batch has its answer. */
  countBatchLine(outcome: "completed" | "failed"): void;
  /** Unfinished batches of this model, on all replicas. */
  setUnfinishedBatches(numBatches: number): void;
  /** The sweep has removed objects from the store of batches. */
  countRemoved(kind: RemovedKind, numObjects: number): void;
  /** Batches that this process is working on. */
  setRunningBatches(numBatches: number): void;
  /** A job of a queue has ended, or went back to its queue. */
  countJob(outcome: JobOutcome): void;
  /** Jobs of a queue that this process has leased. */
  setRunningJobs(numJobs: number): void;
}

const latencyBuckets = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
];
const interTokenBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
const tokenBuckets = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];

type BodyFigures = Pick<BodyIntake, "numBodies" | "numHeldBytes">;

export function createMetrics(
  service: Service,
  bodies: BodyFigures,
  modelName: string,
  startTimes = new StartTimes(),
): Metrics {
  const registry = new Registry();
  registry.setDefaultLabels({ model_name: modelName, engine: "0" });
  collectDefaultMetrics({ register: registry });
  const registers = [registry];

  addCurrentFigures(registry, service, bodies);
  addStartTimes(registry, startTimes);
  addAdapterMetric(registry, service);
  addCacheMetrics(registry, () => service.engine?.caches ?? null);
  const timeToFirstToken = new Histogram({
    name: "vllm:time_to_first_token_seconds",
    help: "Time from the arrival of a request to its first token.",
    buckets: latencyBuckets,
    registers,
  });
  const interTokenLatency = new Histogram({
    name: "vllm:inter_token_latency_seconds",
    help: "Time between consecutive tokens of a sequence.",
    buckets: interTokenBuckets,
    registers,
  });
  const requestLatency = new Histogram({
    name: "vllm:e2e_request_latency_seconds",
    help: "Time from the arrival of a request to the end of its sequence.",
    buckets: latencyBuckets,
    registers,
  });
  const promptTokens = new Histogram({
    name: "vllm:request_prompt_tokens",
    help: "Prompt tokens per request, image tokens included.",
    buckets: tokenBuckets,
    registers,
  });
  const generationTokens = new Histogram({
    name: "vllm:request_generation_tokens",
    help: "Generated tokens per request.",
    buckets: tokenBuckets,
    registers,
  });
  const successes = createCounter(registry, "vllm:request_success_total", "Finished sequences by finish reason.", {
    finished_reason: ["stop", "length", "abort", "error", "repetition"] satisfies readonly FinishReason[],
  });
  const images = new Counter({ name: "fovea_images_total", help: "Images in admitted requests.", registers });
  const videos = new Counter({ name: "fovea_videos_total", help: "Videos in admitted requests.", registers });
  const documents = new Counter({
    name: "fovea_documents_total",
    help: "Documents in admitted requests.",
    registers,
  });
  const imageTokens = new Counter({
    name: "fovea_image_tokens_total",
    help: "Prompt tokens that are embeddings of images.",
    registers,
  });
  const videoTokens = new Counter({
    name: "fovea_video_tokens_total",
    help: "Prompt tokens that are embeddings of frames of videos.",
    registers,
  });
  const batches = createCounter(registry, "fovea_batches_total", "Ended batches by final status.", {
    status: finalStatuses,
  });
  const batchLines = createCounter(
    registry,
    "fovea_batch_lines_total",
    "Answered lines of queued batches; errors count as failed.",
    { outcome: ["completed", "failed"] },
  );
  const unfinishedBatches = new Gauge({
    name: "fovea_batches_unfinished",
    help: "Unfinished batches of this model, on all replicas.",
    registers,
  });
  const removed = createCounter(
    registry,
    "fovea_batch_store_removed_total",
    "Expired files, batches after their retention, and leftovers of killed servers that were removed.",
    { kind: ["file", "batch", "leftover"] satisfies readonly RemovedKind[] },
  );
  const runningBatches = new Gauge({
    name: "fovea_batches_running",
    help: "Batches that this process is working on.",
    registers,
  });
  const jobs = createCounter(
    registry,
    "fovea_jobs_total",
    "Jobs of the queue by outcome: completed, rejected, released for another try, or lost: to another worker, or cancelled.",
    { outcome: ["completed", "rejected", "released", "lost"] satisfies readonly JobOutcome[] },
  );
  const runningJobs = new Gauge({
    name: "fovea_jobs_running",
    help: "Jobs of the queue that this process has leased.",
    registers,
  });
  const httpRequests = new Counter({
    name: "http_requests_total",
    help: "HTTP requests by route, method and status.",
    labelNames: ["handler", "method", "status"],
    registers,
  });
  const httpDuration = new Histogram({
    name: "http_request_duration_seconds",
    help: "Time from request to end of response, by route and method.",
    labelNames: ["handler", "method"],
    buckets: latencyBuckets,
    registers,
  });

  return {
    contentType: registry.contentType,
    render: () => registry.metrics(),
    read: async () => (await registry.getMetricsAsJSON()) as unknown as readonly MetricReading[],
    observeHttpRequest(handler, method, status, seconds) {
      httpRequests.inc({ handler, method, status });
      httpDuration.observe({ handler, method }, seconds);
    },
    observeTimeToFirstToken: (seconds) => timeToFirstToken.observe(seconds),
    observeTokens(seconds, numTokens) {
      for (let token = 0; token < numTokens; token++) interTokenLatency.observe(seconds / numTokens);
    },
    observeSequence(figures, seconds) {
      successes.inc({ finished_reason: figures.finishReason });
      requestLatency.observe(seconds);
      generationTokens.observe(figures.numOutputTokens);
      if (figures.index > 0) return;
      promptTokens.observe(figures.numPromptTokens);
      imageTokens.inc(figures.numImageTokens);
      videoTokens.inc(figures.numVideoTokens ?? 0);
    },
    addMedia(paths) {
      images.inc(paths.images.length);
      videos.inc(paths.videos.length);
      documents.inc(paths.documents.length);
    },
    countBatch: (status) => batches.inc({ status }),
    countBatchLine: (outcome) => batchLines.inc({ outcome }),
    setUnfinishedBatches: (numBatches) => unfinishedBatches.set(numBatches),
    countJob: (outcome) => jobs.inc({ outcome }),
    setRunningJobs: (numJobs) => runningJobs.set(numJobs),
    countRemoved: (kind, numObjects) => removed.inc({ kind }, numObjects),
    setRunningBatches: (numBatches) => runningBatches.set(numBatches),
  };
}

/**
 * A counter with one label. All its series are there from the start, with 0: Prometheus' `rate()` does not see the first
 * event of a series that begins with it.
 *
 * @param values Of the label, by its name.
 */
function createCounter<Label extends string>(
  registry: Registry,
  name: string,
  help: string,
  values: Readonly<Record<Label, readonly string[]>>,
): Counter<Label> {
  const labelNames = Object.keys(values) as Label[];
  const counter = new Counter({ name, help, labelNames, registers: [registry] });
  for (const label of labelNames) {
    for (const value of values[label]) counter.inc({ [label]: value } as Record<Label, string>, 0);
  }
  return counter;
}

function addStartTimes(registry: Registry, startTimes: StartTimes): void {
  registry.registerMetric(
    new Gauge({
      name: "fovea_start_seconds",
      help: "Time of each phase of the start, and in total from the process's start until requests were served.",
      labelNames: ["phase"],
      registers: [],
      collect() {
        for (const [phase, seconds] of startTimes.seconds) this.set({ phase }, seconds);
      },
    }),
  );
}

/** Read at every scrape. */
function addCurrentFigures(registry: Registry, service: Service, bodies: BodyFigures): void {
  const stats = () => service.engine?.stats;
  addGauge(registry, "vllm:num_requests_running", "Sequences in the running batch.", () => stats()?.numRequestsRunning);
  addGauge(
    registry,
    "vllm:num_requests_waiting",
    "Sequences waiting to join the running batch.",
    () => stats()?.numRequestsWaiting,
  );
  addGauge(
    registry,
    "vllm:kv_cache_usage_perc",
    "Fraction of the KV cache in use, 0 to 1.",
    () => stats()?.kvCacheUsage,
  );
  addCounter(registry, "vllm:prompt_tokens_total", "Prompt tokens computed or reused.", () => stats()?.numPromptTokens);
  addCounter(
    registry,
    "vllm:prefix_cache_queries_total",
    "Prompt tokens looked up for reuse.",
    () => stats()?.numPrefixCacheQueries,
  );
  addCounter(
    registry,
    "vllm:prefix_cache_hits_total",
    "Prompt tokens whose keys and values were reused.",
    () => stats()?.numPrefixCacheHits,
  );
  addCounter(
    registry,
    "vllm:num_preemptions_total",
    "Sequences preempted: their keys and values were evicted and computed again.",
    () => stats()?.numPreemptions,
  );
  registry.registerMetric(
    new Gauge({
      name: "vllm:cache_config_info",
      help: "Size of the KV cache, in labels; the value is 1. A slot counts as one block.",
      labelNames: ["block_size", "num_gpu_blocks"],
      registers: [],
      collect() {
        const { blockSize = 0, numBlocks = 0 } = stats()?.kvCapacity ?? {};
        this.reset();
        this.set({ block_size: blockSize, num_gpu_blocks: numBlocks }, 1);
      },
    }),
  );
  addCounter(registry, "vllm:generation_tokens_total", "Tokens generated.", () => stats()?.numGenerationTokens);
  addDraftMetrics(registry, () => stats()?.drafts);
  addGauge(registry, "fovea_engine_stalled", "1 while an engine step exceeds its time limit, else 0.", () =>
    service.stall === null ? 0 : 1,
  );
  addCounter(registry, "fovea_engine_steps_total", "Steps computed by the engine.", () => stats()?.numSteps);
  addGauge(registry, "fovea_http_requests_in_flight", "Generation requests in progress.", () => service.numRequests);
  addGauge(registry, "fovea_http_requests_held", "Requests that wait for the model to load.", () => service.numHeld);
  addGauge(
    registry,
    "fovea_http_bodies_in_flight",
    "JSON request bodies that are arriving or being parsed.",
    () => bodies.numBodies,
  );
  addGauge(registry, "fovea_http_body_bytes", "Bytes of these bodies in memory.", () => bodies.numHeldBytes);
}
