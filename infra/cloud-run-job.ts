/** A job of Cloud Run that runs a batch from S3 to S3: `gcloud run jobs replace`. */
import type { Deployment } from "./deployment.ts";

/** The most that Cloud Run allows. Each attempt resumes at the lines without a result. */
const MAX_RETRIES = 10;

export function cloudRunJob(
  { name, device }: Deployment,
  { input, output, timeoutSeconds }: NonNullable<Deployment["batch"]>,
  container: object,
  accelerator: string | undefined,
) {
  return {
    apiVersion: "run.googleapis.com/v1",
    kind: "Job",
    metadata: { name },
    spec: {
      template: {
        ...(device.kind !== "cpu" && {
          metadata: { annotations: { "run.googleapis.com/gpu-zonal-redundancy-disabled": "true" } },
        }),
        spec: {
          taskCount: 1,
          template: {
            spec: {
              ...(accelerator !== undefined && { nodeSelector: { "run.googleapis.com/accelerator": accelerator } }),
              maxRetries: MAX_RETRIES,
              timeoutSeconds: String(timeoutSeconds),
              containers: [{ ...container, args: ["batch", "--input", input, "--output", output] }],
            },
          },
        },
      },
    },
  };
}
