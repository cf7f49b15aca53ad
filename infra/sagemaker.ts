/**
 * SageMaker as a Terraform module: the model, an endpoint for real-time or asynchronous inference, its scaling and a
 * role with the rights that the settings need. Asynchronous endpoints scale to zero, and a request wakes them.
 */
import { ConfigError } from "../functions/settings/setting.ts";
import { policy, readS3, statementsOf, trustOf } from "./aws-policies.ts";
import type { Statement } from "./aws-policies.ts";
import {
  exceeded,
  gpuProblems,
  queueProblems,
  settingsOf,
  smallestMachine,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";
import { literal, toTerraform } from "./terraform.ts";

/** The port that SageMaker calls, unless containers share a host. */
const SAGEMAKER_PORT = 8080;
/** The platform kills a container 30 s after SIGTERM. */
const MAX_GRACE_SECONDS = 25;
const maxRequestSeconds = { real: 60, async: 3600 } as const;
const MAX_STARTUP_SECONDS = 3600;
const MIN_STARTUP_SECONDS = 60;
const MAX_DISK_GIB = 512;
const IDLE_SECONDS = 300;
/** Periods of a minute without capacity after which the alarm wakes an instance. */
const WAKE_PERIODS = 1;

interface Instance {
  readonly type: string;
  readonly cpu: number;
  readonly memoryGiB: number;
}

/** Sizes from `xlarge` on, each twice the one before. */
function family(name: string, cpu: number, memoryGiB: number): Instance[] {
  return ["xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"].map((size, index) => ({
    type: `ml.${name}.${size}`,
    cpu: cpu * 2 ** index,
    memoryGiB: memoryGiB * 2 ** index,
  }));
}

/** Instances with one GPU. */
const gpuInstances: Readonly<Partial<Record<GpuName, readonly Instance[]>>> = {
  t4: family("g4dn", 4, 16),
  l4: family("g6", 4, 16),
  l40s: family("g6e", 4, 32),
  h100: [{ type: "ml.p5.4xlarge", cpu: 16, memoryGiB: 256 }],
};
const cpuInstances = family("c7i", 4, 8);

export const sageMaker: DeploymentTarget = {
  name: "sagemaker",
  platformVariables: ["PORT"],
  render(deployment) {
    const instance = instanceOf(deployment);
    const problems = problemsOf(deployment, instance);
    if (instance === undefined || problems.length > 0) throw new ConfigError(problems);
    const { region, name } = deployment;
    const module = {
      variable: {
        inference_ami_version: {
          type: "string",
          default: null,
          nullable: true,
          description: "AMI of the instances. With a GPU, it needs NVIDIA's driver 580 or newer.",
        },
      },
      resource: { ...roleOf(deployment), ...endpointOf(deployment, instance), ...scalingOf(deployment) },
      output: { endpoint_name: { value: name } },
    };
    return [toTerraform(region, module)];
  },
};

function instanceOf({ device, resources }: Deployment): Instance | undefined {
  return smallestMachine(device.kind === "cpu" ? cpuInstances : (gpuInstances[device.gpu] ?? []), resources);
}

function problemsOf(deployment: Deployment, instance: Instance | undefined): string[] {
  const { resources, replicas, timeouts, asyncOutput } = deployment;
  const kind = asyncOutput === null ? "real" : "async";
  const problems = exceeded("SageMaker", [
    ["timeouts.requestSeconds", timeouts.requestSeconds, maxRequestSeconds[kind], " s"],
    ["timeouts.startupSeconds", timeouts.startupSeconds, MAX_STARTUP_SECONDS, " s"],
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
    ["resources.diskGiB", resources.diskGiB, MAX_DISK_GIB, " GiB"],
  ]);
  const missingGpu = gpuProblems("SageMaker", deployment, gpuInstances);
  problems.push(...missingGpu);
  if (missingGpu.length === 0 && instance === undefined) {
    problems.push(`resources: SageMaker has no instance with ${resources.cpu} CPUs and ${resources.memoryGiB} GiB.`);
  }
  if (kind === "real" && replicas.min === 0) {
    problems.push(
      "replicas.min: SageMaker scales to zero with asynchronous inference alone; set asyncOutput, or at least 1, got 0.",
    );
  }
  return [
    ...problems,
    ...queueProblems("SageMaker", deployment),
    ...unusedFields("SageMaker", deployment, {
      s3Role: "gets a role of its own; leave it out",
      secrets: "has no secrets for containers; it checks callers by IAM and reads S3 with the role, so leave them out",
      repository: "mounts no repository of Hugging Face",
      modelImage: "mounts no images; use s3:// or a folder of the image",
    }),
  ];
}

/** Besides the rights of the settings: logs and metrics of the endpoint, and the image. */
function roleOf(deployment: Deployment) {
  const { name } = deployment;
  const statements: Statement[] = [
    {
      Effect: "Allow",
      Action: ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
      Resource: `arn:aws:logs:*:*:log-group:/aws/sagemaker/Endpoints/${name}*`,
    },
    {
      Effect: "Allow",
      Action: ["cloudwatch:PutMetricData"],
      Resource: "*",
      Condition: { StringLike: { "cloudwatch:namespace": ["*SageMaker*"] } },
    },
    { Effect: "Allow", Action: ["ecr:GetAuthorizationToken"], Resource: "*" },
    {
      Effect: "Allow",
      Action: ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
      Resource: "arn:aws:ecr:*:*:repository/*",
    },
    ...literal(statementsOf(deployment)),
  ];
  return {
    aws_iam_role: { fovea: { name, assume_role_policy: trustOf("sagemaker.amazonaws.com") } },
    aws_iam_role_policy: { fovea: { role: "${aws_iam_role.fovea.id}", policy: policy(statements) } },
  };
}

function endpointOf(deployment: Deployment, { type }: Instance) {
  const { name, image, replicas, resources, concurrency, timeouts, asyncOutput } = deployment;
  const grace = timeouts.shutdownGraceSeconds ?? MAX_GRACE_SECONDS;
  return {
    aws_sagemaker_model: {
      fovea: {
        name,
        execution_role_arn: "${aws_iam_role.fovea.arn}",
        primary_container: {
          image,
          environment: { ...literal(settingsOf(deployment, grace)), PORT: String(SAGEMAKER_PORT) },
        },
        depends_on: ["aws_iam_role_policy.fovea"],
      },
    },
    aws_sagemaker_endpoint_configuration: {
      fovea: {
        // A configuration cannot be changed, so a new one is made before the old one goes.
        name_prefix: `${name}-`,
        production_variants: {
          variant_name: "all",
          model_name: "${aws_sagemaker_model.fovea.name}",
          instance_type: type,
          initial_instance_count: Math.max(1, replicas.min),
          // Instances with their own disk, such as g5 and g6, reject a size.
          ...(type.startsWith("ml.c7i") && { volume_size_in_gb: resources.diskGiB }),
          container_startup_health_check_timeout_in_seconds: Math.max(MIN_STARTUP_SECONDS, timeouts.startupSeconds),
          inference_ami_version: "${var.inference_ami_version}",
          routing_config: [{ routing_strategy: "LEAST_OUTSTANDING_REQUESTS" }],
        },
        ...(asyncOutput !== null && {
          async_inference_config: {
            client_config: { max_concurrent_invocations_per_instance: concurrency },
            output_config: {
              s3_output_path: literal(withSlash(`${asyncOutput}/results`)),
              s3_failure_path: literal(withSlash(`${asyncOutput}/failures`)),
            },
          },
        }),
        lifecycle: { create_before_destroy: true },
      },
    },
    aws_sagemaker_endpoint: {
      fovea: { name, endpoint_config_name: "${aws_sagemaker_endpoint_configuration.fovea.name}" },
    },
    ...bucketOf(asyncOutput),
  };
}

/** The module makes the bucket of results, private and without a copy of anything else. */
function bucketOf(asyncOutput: string | null) {
  const place = readS3(asyncOutput ?? undefined);
  if (place === null) return {};
  return {
    aws_s3_bucket: { results: { bucket: literal(place.bucket) } },
    aws_s3_bucket_public_access_block: {
      results: {
        bucket: "${aws_s3_bucket.results.id}",
        block_public_acls: true,
        block_public_policy: true,
        ignore_public_acls: true,
        restrict_public_buckets: true,
      },
    },
  };
}

function scalingOf(deployment: Deployment) {
  const { replicas, concurrency, asyncOutput, name } = deployment;
  if (replicas.min === replicas.max) return {};
  const target = {
    service_namespace: "sagemaker",
    resource_id: `endpoint/${name}/variant/all`,
    scalable_dimension: "sagemaker:variant:DesiredInstanceCount",
  };
  const onTarget = {
    service_namespace: "${aws_appautoscaling_target.fovea.service_namespace}",
    resource_id: "${aws_appautoscaling_target.fovea.resource_id}",
    scalable_dimension: "${aws_appautoscaling_target.fovea.scalable_dimension}",
  };
  const dimensions = [{ name: "EndpointName", value: name }];
  const metric =
    asyncOutput === null
      ? {
          predefined_metric_specification: {
            predefined_metric_type: "SageMakerVariantConcurrentRequestsPerModelHighResolution",
          },
        }
      : {
          customized_metric_specification: {
            metric_name: "ApproximateBacklogSizePerInstance",
            namespace: "AWS/SageMaker",
            statistic: "Average",
            dimensions,
          },
        };
  return {
    aws_appautoscaling_target: {
      fovea: {
        ...target,
        min_capacity: replicas.min,
        max_capacity: replicas.max,
        depends_on: ["aws_sagemaker_endpoint.fovea"],
      },
    },
    aws_appautoscaling_policy: {
      load: {
        name: `${name}-load`,
        policy_type: "TargetTrackingScaling",
        ...onTarget,
        target_tracking_scaling_policy_configuration: {
          target_value: concurrency,
          scale_in_cooldown: IDLE_SECONDS,
          scale_out_cooldown: 60,
          ...metric,
        },
      },
      ...(replicas.min === 0 && {
        wake: {
          name: `${name}-wake`,
          policy_type: "StepScaling",
          ...onTarget,
          step_scaling_policy_configuration: {
            adjustment_type: "ChangeInCapacity",
            metric_aggregation_type: "Maximum",
            cooldown: IDLE_SECONDS,
            step_adjustment: [{ metric_interval_lower_bound: "0", scaling_adjustment: 1 }],
          },
        },
      }),
    },
    // Target tracking cannot leave zero, because the metric is per instance.
    ...(replicas.min === 0 && {
      aws_cloudwatch_metric_alarm: {
        wake: {
          alarm_name: `${name}-wake`,
          namespace: "AWS/SageMaker",
          metric_name: "HasBacklogWithoutCapacity",
          dimensions: { EndpointName: name },
          statistic: "Maximum",
          comparison_operator: "GreaterThanOrEqualToThreshold",
          threshold: 1,
          period: 60,
          evaluation_periods: WAKE_PERIODS,
          treat_missing_data: "notBreaching",
          alarm_actions: ["${aws_appautoscaling_policy.wake.arn}"],
        },
      },
    }),
  };
}

function withSlash(address: string): string {
  return `${address.replace(/^(s3:\/\/)|\/+/gi, (_, scheme?: string) => scheme ?? "/")}/`;
}
