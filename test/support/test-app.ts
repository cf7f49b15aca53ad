/** The HTTP application over a scripted engine, called without a socket or served on one. */
import type { AddressInfo } from "node:net";
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import type { Hono } from "hono";

import { createApp } from "../../functions/app.ts";
import type { ApiConfig } from "../../functions/app-dependencies.ts";
import type { AppEnvironment } from "../../functions/http/request-trace.ts";
import { createLogger } from "../../functions/logger.ts";
import { createMetrics } from "../../functions/metrics.ts";
import { Service } from "../../functions/service.ts";
import { createScriptedEngine } from "./scripted-engine.ts";
import type { Script, ScriptedEngine } from "./scripted-engine.ts";

export interface TestAppOptions {
  readonly script?: Script | ((prompt: string) => Script);
  readonly config?: Partial<ApiConfig>;
  readonly maxNumRequests?: number;
  readonly keepAliveMs?: number;
}

export interface TestApp {
  readonly app: Hono<AppEnvironment>;
  readonly engine: ScriptedEngine;
  readonly service: Service;
  /** Parsed lines, in order. */
  readonly log: Record<string, unknown>[];
  readonly post: (path: string, body: unknown, headers?: Record<string, string>) => Promise<Response>;
}

export const chatBody = { messages: [{ role: "user", content: "Hello?" }] };

export function createTestApp({
  script = ["Hel", "lo", "."],
  config = {},
  maxNumRequests = 100,
  keepAliveMs,
}: TestAppOptions = {}): TestApp {
  const engine = createScriptedEngine((request) => {
    if (typeof script !== "function") return script;
    return script(request.prompt.kind === "text" ? request.prompt.text : request.requestId);
  });
  const service = new Service({ maxNumRequests });
  service.engine = engine;
  const log: Record<string, unknown>[] = [];
  const app = createApp({
    service,
    metrics: createMetrics(service, "tiny"),
    logger: createLogger({ level: "debug", write: (line) => log.push(JSON.parse(line) as Record<string, unknown>) }),
    config: {
      allowedOrigins: [],
      apiKeys: [],
      hasPlayground: true,
      maxBodyBytes: 100_000,
      maxLogprobs: 20,
      engine: { maxNumWaiting: 256 },
      defaultExtraArguments: {},
      servedModelNames: ["tiny", "tiny-alias"],
      pingStatusWhileStarting: 503,
      ...config,
    },
    ...(keepAliveMs !== undefined && { keepAliveMs }),
  });
  return {
    app,
    engine,
    service,
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
  const listen = getRequestListener(app.fetch, { overrideGlobalObjects: false });
  const server = createServer((request, response) => void listen(request, response));
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
