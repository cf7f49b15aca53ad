import { describe, expect, test } from "vitest";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { sageMaker } from "../../infra/sagemaker.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { danglingReferences, policyDocument, terraformModule } from "../support/deployments/terraform-schema.ts";

const description = {
  name: "pictures",
  image: "123456789012.dkr.ecr.eu-west-1.amazonaws.com/fovea:1.2.3",
  model: "s3://models/llava",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 1, max: 2 },
  concurrency: 8,
  region: "eu-west-1",
  timeouts: { requestSeconds: 60 },
};

function render(changes: object = {}) {
  return moduleOf(renderWith(sageMaker, description)(changes));
}

function moduleOf([file]: readonly RenderedFile[]) {
  expect(danglingReferences(file!.text)).toEqual([]);
  return terraformModule.parse(JSON.parse(file!.text));
}

testDeploymentTarget({
  target: sageMaker,
  read,
  takesCpu: true,
  maxGraceSeconds: 25,
  takesSecrets: false,
  scalesToZero: false,
  base: { timeouts: { requestSeconds: 60 } },
});

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { resource } = moduleOf(files);
  const container = resource.aws_sagemaker_model!.fovea!.primary_container;
  const variant = resource.aws_sagemaker_endpoint_configuration!.fovea!.production_variants;
  const scaling = resource.aws_appautoscaling_target?.fovea;
  const load = resource.aws_appautoscaling_policy?.load?.target_tracking_scaling_policy_configuration;
  return {
    image: container.image,
    // SageMaker calls 8080.
    port: 8080,
    environment: container.environment,
    secrets: {},
    readinessPath: "/ping",
    livenessPath: null,
    secondsToEnd: 30,
    numGpus: variant.instance_type.startsWith("ml.c7i") ? 0 : 1,
    replicas: {
      min: scaling?.min_capacity ?? variant.initial_instance_count,
      max: scaling?.max_capacity ?? variant.initial_instance_count,
    },
    concurrency: load?.target_value ?? null,
  };
}

describe("asynchronous inference", () => {
  const asynchronous = {
    asyncOutput: "s3://answers/pictures",
    replicas: { min: 0, max: 3 },
    timeouts: { requestSeconds: 3600 },
  };

  test("scales from zero: a request without capacity wakes an instance, and the backlog adds more", () => {
    const { resource } = render(asynchronous);
    const { load, wake } = resource.aws_appautoscaling_policy!;
    expect(load!.target_tracking_scaling_policy_configuration).toMatchObject({
      target_value: 8,
      customized_metric_specification: { metric_name: "ApproximateBacklogSizePerInstance" },
    });
    expect(wake!.step_scaling_policy_configuration!.step_adjustment).toEqual([
      { metric_interval_lower_bound: "0", scaling_adjustment: 1 },
    ]);
    expect(resource.aws_cloudwatch_metric_alarm!.wake).toMatchObject({
      metric_name: "HasBacklogWithoutCapacity",
      alarm_actions: ["${aws_appautoscaling_policy.wake.arn}"],
    });
    expect(resource.aws_appautoscaling_target!.fovea).toMatchObject({ min_capacity: 0, max_capacity: 3 });
  });

  test("writes results and failures below the prefix, into a private bucket of the module", () => {
    const { resource } = render(asynchronous);
    expect(resource.aws_sagemaker_endpoint_configuration!.fovea!.async_inference_config).toEqual({
      client_config: { max_concurrent_invocations_per_instance: 8 },
      output_config: {
        s3_output_path: "s3://answers/pictures/results/",
        s3_failure_path: "s3://answers/pictures/failures/",
      },
    });
    expect(resource.aws_s3_bucket!.results).toEqual({ bucket: "answers" });
    expect(resource.aws_s3_bucket_public_access_block).toBeDefined();
  });
});

test("the role has the rights of the settings on their prefixes, and no others on S3", () => {
  const { resource } = render({ asyncOutput: "s3://answers/pictures", timeouts: { requestSeconds: 60 } });
  const { Statement: statements } = policyDocument.parse(resource.aws_iam_role_policy!.fovea!.policy);
  const onS3 = statements.filter(({ Action: [action] }) => action!.startsWith("s3:"));
  expect(onS3.map(({ Action, Resource }) => [Action.join(), Resource])).toEqual([
    ["s3:GetObject", "arn:aws:s3:::models/llava/*"],
    ["s3:ListBucket", "arn:aws:s3:::models"],
    ["s3:PutObject", "arn:aws:s3:::answers/pictures/*"],
    ["s3:ListBucket", "arn:aws:s3:::answers"],
  ]);
  for (const { Action, Condition } of onS3) {
    if (Action[0] !== "s3:ListBucket") continue;
    expect(Object.keys(Condition!.StringLike!)).toEqual(["s3:prefix"]);
  }
  const unbounded = statements.filter(({ Resource, Condition }) => Resource === "*" && Condition === undefined);
  // The one action that AWS offers without a resource.
  expect(unbounded.map(({ Action }) => Action)).toEqual([["ecr:GetAuthorizationToken"]]);
});

test.for<[object, RegExp]>([
  [{ timeouts: {} }, /^timeouts\.requestSeconds: SageMaker allows at most 60 s, got 300 s\.$/],
  [{ replicas: { min: 0, max: 1 } }, /^replicas\.min: SageMaker scales to zero with asynchronous inference alone/],
  [{ device: { kind: "cuda", gpu: "h200" } }, /^device\.gpu: SageMaker has t4, l4, l40s, h100, not h200\.$/],
  [{ s3Role: "arn:aws:iam::1:role/x" }, /^s3Role: SageMaker gets a role of its own/],
  [{ resources: { cpu: 128, memoryGiB: 16 } }, /^resources: SageMaker has no instance with 128 CPUs and 16 GiB\.$/],
])("unsupported fields of SageMaker are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});
