/** The supported platforms. A new one is one line here. */
import { azureContainerApps } from "./azure-container-apps.ts";
import { baseten } from "./baseten.ts";
import { cloudRun } from "./cloud-run.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import { ecs } from "./ecs.ts";
import { huggingFace } from "./hugging-face.ts";
import { inferencePool } from "./inference-pool.ts";
import { knative } from "./knative.ts";
import { kserveLlm } from "./kserve-llm.ts";
import { kserve } from "./kserve.ts";
import { kubernetes } from "./kubernetes.ts";
import { kustomize } from "./kustomize.ts";
import { modal } from "./modal.ts";
import { runPod } from "./runpod.ts";
import { sageMaker } from "./sagemaker.ts";
import { vertexAi } from "./vertex-ai.ts";

export const deploymentTargets: readonly DeploymentTarget[] = [
  kubernetes,
  kustomize,
  inferencePool,
  knative,
  kserve,
  kserveLlm,
  cloudRun,
  vertexAi,
  sageMaker,
  ecs,
  azureContainerApps,
  runPod,
  huggingFace,
  baseten,
  modal,
];
