/**
 * A Truss with a server of its own for Baseten: `config.yaml` for `truss push`, and the scaling, which Baseten takes
 * over its API. https://docs.baseten.co/development/model/custom-server
 */
import { stringify } from "yaml";

import { ConfigError } from "../functions/settings/setting.ts";
import {
  PORT,
  exceeded,
  gpuProblems,
  healthPaths,
  queueProblems,
  settingsOf,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";

/** The time that a container has after SIGTERM is not documented; other platforms allow at least 10 s. */
const MAX_GRACE_SECONDS = 8;
const MAX_REQUEST_SECONDS = 1200;
const MAX_STARTUP_SECONDS = 3000;
/** A replica ends after this time without requests. */
const SCALE_DOWN_SECONDS = 300;
/** User of the image. Baseten runs the server as another one unless it is named. */
const USER_ID = 65_532;

const accelerators: Readonly<Partial<Record<GpuName, string>>> = {
  t4: "T4",
  l4: "L4",
  l40s: "L40S",
  "rtx-pro-6000": "RTX_PRO_6000",
  "a100-80gb": "A100",
  h100: "H100",
  h200: "H200",
};

export const baseten: DeploymentTarget = {
  name: "baseten",
  platformVariables: [],
  render(deployment) {
    const problems = problemsOf(deployment);
    if (problems.length > 0) throw new ConfigError(problems);
    return [
      { path: "config.yaml", text: `---\n${stringify(config(deployment), { lineWidth: 0 })}` },
      { path: "autoscaling.json", text: `${JSON.stringify(autoscaling(deployment), null, 2)}\n` },
    ];
  },
};

function problemsOf(deployment: Deployment): string[] {
  const { timeouts } = deployment;
  const limits = exceeded("Baseten", [
    ["timeouts.requestSeconds", timeouts.requestSeconds, MAX_REQUEST_SECONDS, " s"],
    ["timeouts.startupSeconds", timeouts.startupSeconds, MAX_STARTUP_SECONDS, " s"],
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
  ]);
  return [
    ...limits,
    ...gpuProblems("Baseten", deployment, accelerators),
    ...queueProblems("Baseten", deployment),
    ...unusedFields("Baseten", deployment, {
      s3Role: "has no AWS roles; list the secrets of a key pair under secrets",
      repository: "mounts no repository here; use s3:// or a folder of the image",
      asyncOutput: "calls a webhook with results of asynchronous requests; leave it out",
      modelImage: "mounts no images; use s3:// or a folder of the image",
    }),
  ];
}

function config(deployment: Deployment) {
  const { name, image, device, resources, concurrency, secrets, timeouts } = deployment;
  return {
    model_name: name,
    base_image: { image },
    docker_server: {
      start_command: startCommand(secrets),
      server_port: PORT,
      predict_endpoint: "/v1/chat/completions",
      readiness_endpoint: healthPaths.readiness,
      liveness_endpoint: healthPaths.liveness,
      run_as_user_id: USER_ID,
    },
    environment_variables: settingsOf(deployment, timeouts.shutdownGraceSeconds ?? MAX_GRACE_SECONDS),
    secrets: Object.fromEntries(Object.values(secrets).map((secret) => [secret, null])),
    resources: {
      cpu: String(resources.cpu),
      memory: `${Math.ceil(resources.memoryGiB * 1024)}Mi`,
      ...(device.kind !== "cpu" && { accelerator: accelerators[device.gpu] }),
    },
    runtime: {
      predict_concurrency: concurrency,
      health_checks: { startup_threshold_seconds: timeouts.startupSeconds },
    },
  };
}

/** Baseten mounts secrets as files named like them. */
function startCommand(secrets: Deployment["secrets"]): string {
  const serve = "exec node /app/functions/cli/main.js serve";
  const exports = Object.entries(secrets).map(([name, secret]) => `export ${name}="$(cat /secrets/${secret})"`);
  return `sh -c '${[...exports, serve].join("; ")}'`;
}

function autoscaling({ replicas, concurrency }: Deployment) {
  return {
    min_replica: replicas.min,
    max_replica: replicas.max,
    concurrency_target: concurrency,
    scale_down_delay: SCALE_DOWN_SECONDS,
  };
}
