/**
 * The contract of every platform's rendering. A new platform is one file, one line of registration and one call of this
 * suite, with a reader of the rendered files.
 */
import { describe, expect, test } from "vitest";

import { loadConfig, settingDescriptions } from "../../functions/settings/config.ts";
import { ConfigError } from "../../functions/settings/setting.ts";
import { healthPaths } from "../../infra/deployment-target.ts";
import type { DeploymentTarget, RenderedFile } from "../../infra/deployment-target.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import { deploymentTargets } from "../../infra/targets.ts";
import { createTestApp } from "../support/service/test-app.ts";

/** The platform's behaviour according to its files. */
export interface RenderedDeployment {
  readonly image: string;
  readonly port: number;
  readonly environment: Readonly<Record<string, unknown>>;
  /** Names of secrets by variable. */
  readonly secrets: Readonly<Record<string, string>>;
  /** Probed before a replica gets requests; null if replicas get none. */
  readonly readinessPath: string | null;
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
  /** Fields that this platform needs, or without which it has no such deployment. */
  readonly base?: Readonly<Record<string, unknown>> & {
    readonly environment?: Readonly<Record<string, unknown>>;
    readonly timeouts?: Readonly<Record<string, unknown>>;
  };
  /** A GPU that the platform has. Default: l4. */
  readonly gpu?: string;
  /** False if the platform has no secrets for containers, and rejects them. */
  readonly takesSecrets?: boolean;
  /** False if the platform keeps at least one replica, and rejects less. */
  readonly scalesToZero?: boolean;
  /** False if the platform has a fixed number of replicas, and rejects a range. */
  readonly scales?: boolean;
  /** False if the platform scales by something else than requests or jobs per replica. */
  readonly countsRequests?: boolean;
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

/** Fits the smallest platforms. */
const smallCpu = { cpu: 2, memoryGiB: 4 };

export function testDeploymentTarget({
  target,
  read,
  takesCpu,
  maxGraceSeconds,
  base = {},
  gpu = "l4",
  takesSecrets = true,
  scalesToZero = true,
  scales = true,
  countsRequests = scales,
}: DeploymentTargetFixture): void {
  const own = {
    ...description,
    device: { kind: "cuda", gpu },
    secrets: takesSecrets ? description.secrets : {},
    ...(!scales && { replicas: { min: 5, max: 5 } }),
    ...base,
    environment: { ...description.environment, ...base.environment },
  };
  const files = (changes: object = {}) => target.render(parseDeployment(JSON.stringify({ ...own, ...changes })));
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
      for (const path of paths) expect(path).toMatch(/^[a-z-]+(\.tf)?\.(yaml|json|py)$/);
    });

    test("gives every variable a string value and a name that the service or the platform knows", () => {
      const known = [...settingDescriptions.map(({ name }) => name), ...target.platformVariables];
      for (const [name, value] of Object.entries(rendered().environment)) {
        expect(known).toContain(name);
        expect(value).toBeTypeOf("string");
      }
    });

    test("sets variables that the service accepts and that say what the deployment says", () => {
      const { environment, port } = rendered();
      const config = loadConfig(environment as Record<string, string>);
      expect(config).toMatchObject({
        port,
        engine: { model: "s3://models/llava", dtype: "float16", device: "cuda", maxNumSequences: 24 },
        images: { allowHttp: false },
      });
      expect(config.engine.imageLimits.maxImagesPerPrompt).toBe(2);
    });

    test("passes secrets by name only", () => {
      expect(rendered().secrets).toEqual(own.secrets);
      for (const name of Object.keys(own.secrets)) expect(rendered().environment).not.toHaveProperty(name);
      const withSecret = () => Object.keys(rendered({ secrets: { API_KEY: "pictures-key" } }).secrets).length;
      expect(valueOrRefusedField(withSecret)).toBe(takesSecrets ? 1 : "secrets.API_KEY");
    });

    test("checks readiness on the service's port, at a route that needs a loaded model", async () => {
      const { readinessPath, environment } = rendered();
      if (readinessPath === null) return;
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
        const { secondsToEnd, environment } = rendered({ timeouts: { ...base.timeouts, shutdownGraceSeconds } });
        const graceSeconds = Number(environment.SHUTDOWN_GRACE_SECONDS);
        expect(graceSeconds).toBe(shutdownGraceSeconds ?? graceSeconds);
        expect(graceSeconds).toBeGreaterThan(0);
        expect(graceSeconds).toBeLessThan(secondsToEnd ?? 10);
      }
    });

    test("rejects a grace that the platform does not allow", () => {
      const tooLong = (maxGraceSeconds ?? 119) + 1;
      const graceOf = () =>
        Number(
          rendered({ timeouts: { ...base.timeouts, shutdownGraceSeconds: tooLong } }).environment
            .SHUTDOWN_GRACE_SECONDS,
        );
      expect(valueOrRefusedField(graceOf)).toBe(maxGraceSeconds === null ? tooLong : "timeouts.shutdownGraceSeconds");
    });

    test("requests a GPU for a GPU deployment, and none or an error for a CPU deployment", () => {
      expect(rendered().numGpus).toBe(1);
      expect(rendered({ device: { kind: "webgpu", gpu } }).numGpus).toBe(1);
      const gpusOnCpu = () => rendered({ device: { kind: "cpu" }, dtype: "int8", resources: smallCpu }).numGpus;
      expect(valueOrRefusedField(gpusOnCpu)).toBe(takesCpu ? 0 : "device.kind");
    });

    test("scales to zero, or rejects that, and never above the maximum", () => {
      expect(rendered().replicas).toEqual({ min: scales ? 1 : 5, max: 5 });
      const range = () => rendered({ replicas: { min: 1, max: 2 } }).replicas.max;
      expect(valueOrRefusedField(range)).toBe(scales ? 2 : "replicas");
      const toZero = () => rendered({ replicas: { min: 0, max: 2 } }).replicas.min;
      expect(valueOrRefusedField(toZero)).toBe(scales ? (scalesToZero ? 0 : "replicas.min") : "replicas");
      expect(rendered({ replicas: { min: 3, max: 3 } }).replicas).toEqual({ min: 3, max: 3 });
    });

    test("runs a batch, or rejects it", () => {
      const batch = { input: "s3://bucket/in.jsonl", output: "s3://bucket/out.jsonl" };
      const paths = () => files({ batch }).length;
      expect(valueOrRefusedField(paths)).toBe(target.name === "cloud-run" ? 1 : "batch");
    });

    test("scales at the deployment's concurrency, which defaults to MAX_NUM_SEQS", () => {
      expect(rendered().concurrency).toBe(countsRequests ? 24 : null);
      const environment = { ...base.environment, MAX_NUM_SEQS: "6" };
      expect(rendered({ concurrency: undefined, environment }).concurrency).toBe(countsRequests ? 6 : null);
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
