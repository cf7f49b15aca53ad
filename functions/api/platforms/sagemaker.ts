/**
 * The part of SageMaker's contract for batch transforms: how to send the lines of a file to /invocations.
 * https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-batch-code.html
 */
import type { Handler } from "hono";

import { totalSequences } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";

/** SageMaker's limit for the product of both numbers. */
const MAX_MIB_IN_PROGRESS = 100;
const MEBIBYTE = 1024 ** 2;

export function executionParametersRoute({ config }: Pick<AppDependencies, "config">): Handler {
  const maxConcurrentTransforms = Math.min(totalSequences(config.engine), MAX_MIB_IN_PROGRESS);
  const room = Math.floor(MAX_MIB_IN_PROGRESS / maxConcurrentTransforms);
  return (c) =>
    c.json({
      MaxConcurrentTransforms: maxConcurrentTransforms,
      // Each line is one body.
      BatchStrategy: "SINGLE_RECORD",
      MaxPayloadInMB: Math.max(1, Math.min(room, Math.floor(config.maxBodyBytes / MEBIBYTE))),
    });
}
