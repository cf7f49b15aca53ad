/** The Python file that Modal wants: a function that starts the image's server on its port. https://modal.com/docs */
import { ConfigError } from "../functions/settings/setting.ts";
import {
  PORT,
  containerCacheFolder,
  exceeded,
  gpuProblems,
  healthPaths,
  queueProblems,
  settingsOf,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";

/** Modal interrupts a container and kills it 30 s later. */
const MAX_GRACE_SECONDS = 25;
const MAX_REQUEST_SECONDS = 86_400;
/** A replica ends after this time without requests. */
const SCALEDOWN_SECONDS = 300;

const gpus: Readonly<Partial<Record<GpuName, string>>> = {
  t4: "T4",
  l4: "L4",
  l40s: "L40S",
  "rtx-pro-6000": "RTX-PRO-6000",
  "a100-80gb": "A100-80GB",
  h100: "H100!",
  h200: "H200",
};

export const modal: DeploymentTarget = {
  name: "modal",
  platformVariables: [],
  render(deployment) {
    const problems = problemsOf(deployment);
    if (problems.length > 0) throw new ConfigError(problems);
    return [{ path: "app.py", text: program(deployment) }];
  },
};

function problemsOf(deployment: Deployment): string[] {
  const { timeouts } = deployment;
  const limits = exceeded("Modal", [
    ["timeouts.requestSeconds", timeouts.requestSeconds, MAX_REQUEST_SECONDS, " s"],
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
  ]);
  return [
    ...limits,
    ...gpuProblems("Modal", deployment, gpus),
    ...queueProblems("Modal", deployment),
    ...unusedFields("Modal", deployment, {
      s3Role: "has no AWS roles here; list the secrets of a key pair under secrets",
      repository: "mounts no repository of Hugging Face",
      asyncOutput: "has no asynchronous inference",
      modelImage: "mounts no images; use s3:// or a folder of the image",
    }),
  ];
}

/** A dict of texts, numbers, lists and dicts is the same in JSON and in Python. */
function program(deployment: Deployment): string {
  const { name, image, device, resources, replicas, concurrency, secrets, timeouts } = deployment;
  const literal = {
    name,
    image,
    environment: settingsOf(deployment, timeouts.shutdownGraceSeconds ?? MAX_GRACE_SECONDS),
    secrets: Object.entries(secrets).map(([variable, secret]) => ({ name: secret, variable })),
    port: PORT,
    readiness: healthPaths.readiness,
    function: {
      ...(device.kind !== "cpu" && { gpu: gpus[device.gpu] }),
      cpu: resources.cpu,
      memory: Math.ceil(resources.memoryGiB * 1024),
      min_containers: replicas.min,
      max_containers: replicas.max,
      scaledown_window: SCALEDOWN_SECONDS,
      timeout: timeouts.requestSeconds,
      startup_timeout: timeouts.startupSeconds,
    },
    concurrency,
  };
  return `"""${name} on Modal: modal deploy app.py"""

import subprocess
import time
import urllib.request

import modal

DEPLOYMENT = ${JSON.stringify(literal, null, 4)}

app = modal.App(DEPLOYMENT["name"])


@app.function(
    # Modal's own runner needs Python. The image's entry point is started below.
    image=modal.Image.from_registry(DEPLOYMENT["image"], add_python="3.12").entrypoint([]),
    env=DEPLOYMENT["environment"],
    secrets=[
        modal.Secret.from_name(secret["name"], required_keys=[secret["variable"]])
        for secret in DEPLOYMENT["secrets"]
    ],
    # Downloaded and quantised weights outlive the container.
    volumes={"${containerCacheFolder}": modal.Volume.from_name(DEPLOYMENT["name"] + "-cache", create_if_missing=True)},
    **DEPLOYMENT["function"],
)
@modal.concurrent(max_inputs=DEPLOYMENT["concurrency"])
@modal.web_server(port=DEPLOYMENT["port"], startup_timeout=DEPLOYMENT["function"]["startup_timeout"])
def serve():
    server = subprocess.Popen(["node", "/app/functions/cli/main.js", "serve"])
    # The port opens before the model is loaded, so an open port alone does not say that requests are served.
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{DEPLOYMENT['port']}{DEPLOYMENT['readiness']}", timeout=5)
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"The server ended with exit code {server.returncode}; the log says why.")
`;
}
