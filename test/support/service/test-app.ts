/** The HTTP application over a scripted engine, called without a socket or served on one. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Hono } from "hono";

import { defaultVideoLimits } from "../../../engine/contract/default-limits.ts";
import type { SamplingParams } from "../../../engine/index.ts";
import type { ApiConfig } from "../../../functions/app-dependencies.ts";
import { createApp, createListener } from "../../../functions/app.ts";
import { BodyIntake } from "../../../functions/http/body-intake.ts";
import type { AppEnvironment } from "../../../functions/http/request-trace.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createMetrics } from "../../../functions/metrics.ts";
import { Service } from "../../../functions/service.ts";
import { createScriptedEngine } from "../engine/scripted-engine.ts";
import type { Script, ScriptedEngine } from "../engine/scripted-engine.ts";

export interface TestAppOptions {
  readonly script?: Script | ((prompt: string) => Script);
  readonly config?: Partial<ApiConfig>;
  /** Of the checkpoint. */
  readonly defaultSamplingParams?: Partial<SamplingParams>;
  readonly maxNumRequests?: number;
  readonly maxNumBodies?: number;
  readonly maxKeptBytes?: number;
  readonly bodyIdleTimeoutMs?: number;
  readonly keepAliveMs?: number;
  /** See `ServiceOptions`. */
  readonly holdMs?: number;
  /** The engine is loading until `engine.endLoading()`. */
  readonly isLoading?: boolean;
}

export interface TestApp {
  readonly app: Hono<AppEnvironment>;
  readonly engine: ScriptedEngine;
  readonly service: Service;
  readonly config: ApiConfig;
  readonly bodies: BodyIntake;
  /** Parsed lines, in order. */
  readonly log: Record<string, unknown>[];
  readonly post: (path: string, body: unknown, headers?: Record<string, string>) => Promise<Response>;
}

export const chatBody = { messages: [{ role: "user", content: "Hello?" }] };

export function createTestApp({
  script = ["Hel", "lo", "."],
  config = {},
  defaultSamplingParams,
  maxNumRequests = 100,
  maxNumBodies,
  maxKeptBytes,
  bodyIdleTimeoutMs = 60_000,
  keepAliveMs,
  holdMs = 0,
  isLoading = false,
}: TestAppOptions = {}): TestApp {
  const engine = createScriptedEngine(
    (request) => {
      if (typeof script !== "function") return script;
      return script(request.prompt.kind === "text" ? request.prompt.text : request.requestId);
    },
    isLoading,
    defaultSamplingParams,
  );
  const service = new Service({ maxNumRequests, holdMs });
  service.engine = engine;
  const { maxBodyBytes = 100_000 } = config;
  const bodies = new BodyIntake({
    maxBodyBytes,
    idleTimeoutMs: bodyIdleTimeoutMs,
    drainSignal: service.drainSignal,
    ...(maxNumBodies !== undefined && { maxNumBodies }),
    ...(maxKeptBytes !== undefined && { maxKeptBytes }),
  });
  const log: Record<string, unknown>[] = [];
  const appConfig: ApiConfig = {
    allowedOrigins: [],
    apiKeys: [],
    hasPlayground: true,
    maxBodyBytes,
    maxLogprobs: 20,
    schedulingPolicy: "fcfs",
    inlineImages: "completions",
    engine: {
      dataParallelSize: 1,
      maxNumSequences: 8,
      maxNumWaiting: 256,
      pipelinePath: [],
      videoLimits: defaultVideoLimits,
    },
    videoSampling: {},
    defaultExtraArguments: {},
    servedModelNames: ["tiny", "tiny-alias"],
    pingStatusWhileStarting: 503,
    vertexRoutes: { health: null, predict: null },
    ...config,
  };
  const app = createApp({
    service,
    bodies,
    metrics: createMetrics(service, bodies, "tiny"),
    logger: createLogger({ level: "debug", write: (line) => log.push(JSON.parse(line) as Record<string, unknown>) }),
    config: appConfig,
    ...(keepAliveMs !== undefined && { keepAliveMs }),
  });
  return {
    app,
    engine,
    service,
    config: appConfig,
    bodies,
    log,
    post: async (path, body, headers = {}) =>
      app.request(path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: typeof body === "string" ? body : JSON.stringify(body),
      }),
  };
}

export interface ServedApp extends AsyncDisposable {
  readonly baseUrl: string;
}

export async function serveApp({ app }: TestApp): Promise<ServedApp> {
  const server = createServer({ requireHostHeader: false }, createListener(app));
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      server.closeAllConnections();
      await closed.promise;
    },
  };
}
