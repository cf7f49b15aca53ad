/**
 * The contract of every platform's rendering. A new platform is one file, one line of registration and one call of this
 * suite, with a reader of the rendered files.
 */
import { describe, expect, test } from "vitest";

import { loadConfig, settingDescriptions } from "../../functions/settings/config.ts";
import { ConfigError } from "../../functions/settings/setting.ts";
import { PORT, healthPaths } from "../../infra/deployment-target.ts";
import type { DeploymentTarget, RenderedFile } from "../../infra/deployment-target.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import { deploymentTargets } from "../../infra/targets.ts";
import { createTestApp } from "../support/test-app.ts";

/** The platform's behaviour according to its files. */
export interface RenderedDeployment {
  readonly image: string;
  readonly port: number;
  readonly environment: Readonly<Record<string, unknown>>;
  /** Names of secrets by variable. */
  readonly secrets: Readonly<Record<string, string>>;
  /** Probed before a replica gets requests. */
  readonly readinessPath: string;
  /** Probed to decide about a restart; null if the platform does not. */
  readonly livenessPath: string | null;
  /** Time between SIGTERM and SIGKILL; null if it is not configurable. */
  readonly secondsToEnd: number | null;
  readonly numGpus: number;
  readonly replicas: { readonly min: number; readonly max: number };
  readonly concurrency: number | null;
}

export interface DeploymentTargetFixture {
  readonly target: DeploymentTarget;
  readonly read: (files: readonly RenderedFile[]) => RenderedDeployment;
  /** False if the platform is rendered only for GPUs. */
  readonly takesCpu: boolean;
  /** Null if the platform has no maximum. */
  readonly maxGraceSeconds: number | null;
}

const description = {
  name: "pictures",
  image: `registry.example.com/fovea@sha256:${"0123456789abcdef".repeat(4)}`,
  model: "s3://models/llava",
  dtype: "float16",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 8, memoryGiB: 32 },
  replicas: { min: 1, max: 5 },
  concurrency: 24,
  environment: { MAX_NUM_SEQS: 24, ALLOW_HTTP_IMAGES: false, LIMIT_MM_PER_PROMPT: '{"image": 2}' },
  secrets: { API_KEY: "pictures-key", REDIS_URL: "pictures-redis" },
};

export function testDeploymentTarget({ target, read, takesCpu, maxGraceSeconds }: DeploymentTargetFixture): void {
  const files = (changes: object = {}) =>
    target.render(parseDeployment(JSON.stringify({ ...description, ...changes })));
  const rendered = (changes: object = {}) => read(files(changes));

  describe(`the contract of deployment targets: ${target.name}`, () => {
    test("is registered", () => {
      expect(deploymentTargets).toContain(target);
    });

    test("keeps the image reference unchanged", () => {
      expect(rendered().image).toBe(description.image);
    });

    test("renders the same deployment to the same files, with unique names", () => {
      expect(files()).toEqual(files());
      const paths = files().map(({ path }) => path);
      expect(new Set(paths).size).toBe(paths.length);
      for (const path of paths) expect(path).toMatch(/^[a-z-]+\.(yaml|json)$/);
    });

    test("gives every variable a string value and a name that the service or the platform knows", () => {
      const known = [...settingDescriptions.map(({ name }) => name), ...target.platformVariables];
      for (const [name, value] of Object.entries(rendered().environment)) {
        expect(known).toContain(name);
        expect(value).toBeTypeOf("string");
      }
    });

    test("sets variables that the service accepts and that say what the deployment says", () => {
      const config = loadConfig(rendered().environment as Record<string, string>);
      expect(config).toMatchObject({
        port: PORT,
        engine: { model: "s3://models/llava", dtype: "float16", device: "cuda", maxNumSequences: 24 },
        images: { allowHttp: false },
      });
      expect(config.engine.imageLimits.maxImagesPerPrompt).toBe(2);
    });

    test("passes secrets by name only", () => {
      expect(rendered().secrets).toEqual(description.secrets);
      for (const name of Object.keys(description.secrets)) expect(rendered().environment).not.toHaveProperty(name);
    });

    test("checks readiness on the service's port, at a route that needs a loaded model", async () => {
      const { port, readinessPath, environment } = rendered();
      expect(port).toBe(PORT);
      const { app, engine } = createTestApp({ config: loadConfig(environment as Record<string, string>) });
      expect((await app.request(readinessPath)).status).toBe(200);
      engine.state = "loading";
      // 204 if the platform gives it a meaning and the service is configured for it.
      const whileLoading = Number(environment.HEALTH_INITIALIZING_CODE ?? 503);
      expect((await app.request(readinessPath)).status).toBe(whileLoading);
    });

    test("restarts a failed replica, but not one that starts or drains", async () => {
      const livenessPath = rendered().livenessPath ?? healthPaths.liveness;
      const { app, engine, service } = createTestApp();
      engine.state = "loading";
      expect((await app.request(livenessPath)).status).toBe(200);
      engine.state = "failed";
      expect((await app.request(livenessPath)).status).toBe(500);
      engine.state = "ready";
      await service.drain(0);
      expect((await app.request(livenessPath)).status).toBe(200);
    });

    test("gives requests in progress less time than the platform gives the replica, whatever the grace", () => {
      for (const shutdownGraceSeconds of [undefined, 3, maxGraceSeconds ?? 120]) {
        const { secondsToEnd, environment } = rendered({ timeouts: { shutdownGraceSeconds } });
        const graceSeconds = Number(environment.SHUTDOWN_GRACE_SECONDS);
        expect(graceSeconds).toBe(shutdownGraceSeconds ?? graceSeconds);
        expect(graceSeconds).toBeGreaterThan(0);
        expect(graceSeconds).toBeLessThan(secondsToEnd ?? 10);
      }
    });

    test("rejects a grace that the platform does not allow", () => {
      const graceOf = () =>
        Number(rendered({ timeouts: { shutdownGraceSeconds: 120 } }).environment.SHUTDOWN_GRACE_SECONDS);
      expect(valueOrRefusedField(graceOf)).toBe(maxGraceSeconds === null ? 120 : "timeouts.shutdownGraceSeconds");
    });

    test("requests a GPU for a GPU deployment, and none or an error for a CPU deployment", () => {
      expect(rendered().numGpus).toBe(1);
      expect(rendered({ device: { kind: "webgpu", gpu: "l4" } }).numGpus).toBe(1);
      const gpusOnCpu = () => rendered({ device: { kind: "cpu" }, dtype: "int8" }).numGpus;
      expect(valueOrRefusedField(gpusOnCpu)).toBe(takesCpu ? 0 : "device.kind");
    });

    test("scales to zero and never above the maximum", () => {
      expect(rendered().replicas).toEqual({ min: 1, max: 5 });
      expect(rendered({ replicas: { min: 0, max: 2 } }).replicas).toEqual({ min: 0, max: 2 });
      expect(rendered({ replicas: { min: 3, max: 3 } }).replicas).toEqual({ min: 3, max: 3 });
    });

    test("scales at the deployment's concurrency, which defaults to MAX_NUM_SEQS", () => {
      expect(rendered().concurrency).toBe(24);
      const { concurrency: _, ...rest } = description;
      const byDefault = { ...rest, environment: { MAX_NUM_SEQS: "6" } };
      expect(read(target.render(parseDeployment(JSON.stringify(byDefault)))).concurrency).toBe(6);
    });
  });
}

function valueOrRefusedField(run: () => number): number | string {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message.split(":")[0]!;
  }
}
