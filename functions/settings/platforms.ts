/** Variables by which serverless platforms say how they call the container. The names are the platforms'. */
import { setting } from "./setting.ts";
import { integer, routePath } from "./values.ts";

const MAX_PORT = 65_535;

export const platformSettings = {
  /** https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements */
  vertex: {
    port: setting("AIP_HTTP_PORT", integer(1, MAX_PORT), "Set by Vertex AI: the port to listen on, instead of PORT."),
    healthRoute: setting("AIP_HEALTH_ROUTE", routePath(), "Set by Vertex AI: another path of /health."),
    predictRoute: setting(
      "AIP_PREDICT_ROUTE",
      routePath(),
      "Set by Vertex AI: the path of predictions, for instances and for bodies of completions.",
    ),
  },
  /** https://docs.aws.amazon.com/sagemaker/latest/dg/multi-container-troubleshooting.html */
  sageMakerPort: setting(
    "SAGEMAKER_BIND_TO_PORT",
    integer(1, MAX_PORT),
    "Set by SageMaker where containers share a host: the port to listen on, instead of PORT.",
  ),
  /** https://docs.runpod.io/serverless/load-balancing/overview */
  healthPort: setting(
    "PORT_HEALTH",
    integer(1, MAX_PORT),
    "Port that answers health checks and metrics, and nothing else; default: PORT answers them. Set for RunPod.",
  ),
};
