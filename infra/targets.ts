/** The supported platforms. A new one is one line here. */
import { cloudRun } from "./cloud-run.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import { kubernetes } from "./kubernetes.ts";
import { runPod } from "./runpod.ts";

export const deploymentTargets: readonly DeploymentTarget[] = [kubernetes, cloudRun, runPod];
