/**
 * Workers on Amazon ECS as a Terraform module: the queue of jobs on SQS with its dead letters, a task with one GPU, its
 * roles, and scaling by the length of the queue, from zero. Instances come from a capacity provider of the user.
 */
import { ConfigError } from "../functions/settings/setting.ts";
import { deadLettersOf, policy, readSqsQueue, statementsOf, trustOf } from "./aws-policies.ts";
import type { SqsQueue } from "./aws-policies.ts";
import { containerCacheFolder, exceeded, settingsOf, unusedFields } from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment } from "./deployment.ts";
import { literal, toTerraform } from "./terraform.ts";

/** ECS kills a container at most 120 s after SIGTERM. */
const MAX_STOP_SECONDS = 120;
const MAX_GRACE_SECONDS = 110;
const DEFAULT_GRACE_SECONDS = 45;
const EXIT_SECONDS = 10;
const COOLDOWN_SECONDS = 300;
/** SQS keeps a message for at most 14 days. */
const RETENTION_SECONDS = 14 * 24 * 60 * 60;

export const ecs: DeploymentTarget = {
  name: "ecs",
  platformVariables: [],
  render(deployment) {
    const queue = readSqsQueue(deployment.config.jobs.source);
    const problems = problemsOf(deployment, queue);
    if (queue === null || problems.length > 0) throw new ConfigError(problems);
    const { secrets } = deployment;
    const module = {
      variable: {
        cluster: { type: "string", description: "Name of the ECS cluster." },
        capacity_provider: {
          type: "string",
          description: "Capacity provider of the cluster, with instances that have the GPU and NVIDIA's driver 580.",
        },
      },
      ...(Object.keys(secrets).length > 0 && { data: { aws_secretsmanager_secret: secretsOf(deployment) } }),
      resource: {
        ...queueOf(queue, deployment),
        ...rolesOf(deployment),
        ...taskOf(deployment, queue),
        ...scalingOf(deployment, queue),
      },
      output: { queue_url: { value: "${aws_sqs_queue.jobs.url}" } },
    };
    return [toTerraform(queue.region, module)];
  },
};

function problemsOf(deployment: Deployment, queue: SqsQueue | null): string[] {
  const { worker, timeouts } = deployment;
  const problems = exceeded("ECS", [
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
  ]);
  if (!worker) {
    problems.push("worker: on ECS, workers are rendered, which take jobs from SQS; expected true, got false.");
  }
  if (queue === null) {
    problems.push("environment.JOB_SOURCE: ECS expects sqs://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE.");
  }
  return [
    ...problems,
    ...unusedFields("ECS", deployment, {
      s3Role: "gets a role of its own; leave it out",
      repository: "mounts no repository of Hugging Face",
      asyncOutput: "has no asynchronous inference; name JOB_RESULTS",
      modelImage: "mounts no images; use s3:// or a folder of the image",
    }),
  ];
}

function secretsOf({ secrets }: Deployment) {
  return Object.fromEntries(Object.entries(secrets).map(([variable, name]) => [variable, { name }]));
}

/** Messages are invisible for as long as a lease lasts; workers renew it. */
function queueOf(queue: SqsQueue, { config }: Deployment) {
  const isFifo = queue.name.endsWith(".fifo");
  const common = { message_retention_seconds: RETENTION_SECONDS, sqs_managed_sse_enabled: true };
  return {
    aws_sqs_queue: {
      dead_letters: { name: deadLettersOf(queue), ...(isFifo && { fifo_queue: true }), ...common },
      jobs: {
        name: queue.name,
        ...(isFifo && { fifo_queue: true }),
        ...common,
        visibility_timeout_seconds: Math.ceil(config.jobs.leaseMs / 1000),
        receive_wait_time_seconds: 20,
        // Above the count at which a worker gives a job up itself, so that the refusal is delivered as a result.
        redrive_policy: `\${jsonencode({ deadLetterTargetArn = aws_sqs_queue.dead_letters.arn, maxReceiveCount = ${config.jobs.maxDeliveries + 1} })}`,
      },
    },
  };
}

/** One role for the process, and one for ECS, which pulls the image and reads secrets. */
function rolesOf(deployment: Deployment) {
  const { name, secrets } = deployment;
  const secretArns = Object.keys(secrets).map((variable) => `\${data.aws_secretsmanager_secret.${variable}.arn}`);
  const start = [
    { Effect: "Allow", Action: ["ecr:GetAuthorizationToken"], Resource: "*" },
    {
      Effect: "Allow",
      Action: ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
      Resource: "arn:aws:ecr:*:*:repository/*",
    },
    {
      Effect: "Allow",
      Action: ["logs:CreateLogStream", "logs:PutLogEvents"],
      Resource: "${aws_cloudwatch_log_group.fovea.arn}:*",
    },
    ...(secretArns.length > 0
      ? [{ Effect: "Allow", Action: ["secretsmanager:GetSecretValue"], Resource: secretArns } as const]
      : []),
  ] as const;
  const trust = trustOf("ecs-tasks.amazonaws.com");
  return {
    aws_iam_role: {
      task: { name: `${name}-task`, assume_role_policy: trust },
      start: { name: `${name}-start`, assume_role_policy: trust },
    },
    aws_iam_role_policy: {
      task: { role: "${aws_iam_role.task.id}", policy: policy(literal(statementsOf(deployment))) },
      start: { role: "${aws_iam_role.start.id}", policy: policy(start) },
    },
    aws_cloudwatch_log_group: { fovea: { name: `/ecs/${name}`, retention_in_days: 30 } },
  };
}

function taskOf(deployment: Deployment, { region }: SqsQueue) {
  const { name, replicas } = deployment;
  return {
    aws_ecs_task_definition: {
      fovea: {
        family: name,
        requires_compatibilities: ["EC2"],
        network_mode: "bridge",
        task_role_arn: "${aws_iam_role.task.arn}",
        execution_role_arn: "${aws_iam_role.start.arn}",
        container_definitions: JSON.stringify([container(deployment, region)]),
        // Downloaded and quantised weights stay on the instance.
        volume: [{ name: "cache", docker_volume_configuration: { scope: "shared", autoprovision: true } }],
      },
    },
    aws_ecs_service: {
      fovea: {
        name,
        cluster: "${var.cluster}",
        task_definition: "${aws_ecs_task_definition.fovea.arn}",
        desired_count: replicas.min,
        capacity_provider_strategy: [{ capacity_provider: "${var.capacity_provider}", weight: 1 }],
        // The number is that of the scaling.
        lifecycle: { ignore_changes: ["desired_count"] },
      },
    },
  };
}

function container(deployment: Deployment, region: string) {
  const { name, image, device, resources, secrets, timeouts } = deployment;
  const grace = timeouts.shutdownGraceSeconds ?? DEFAULT_GRACE_SECONDS;
  return {
    name: "fovea",
    image,
    command: ["worker"],
    essential: true,
    cpu: Math.round(resources.cpu * 1024),
    memory: Math.ceil(resources.memoryGiB * 1024),
    ...(device.kind !== "cpu" && { resourceRequirements: [{ type: "GPU", value: "1" }] }),
    environment: Object.entries(settingsOf(deployment, grace)).map(([variable, value]) => ({
      name: variable,
      value: literal(value),
    })),
    secrets: Object.keys(secrets).map((variable) => ({
      name: variable,
      valueFrom: `\${data.aws_secretsmanager_secret.${variable}.arn}`,
    })),
    stopTimeout: Math.min(MAX_STOP_SECONDS, grace + EXIT_SECONDS),
    healthCheck: {
      command: ["CMD", "node", "/app/container/health-check.js"],
      interval: 10,
      timeout: 5,
      retries: 3,
      startPeriod: 300,
    },
    mountPoints: [{ sourceVolume: "cache", containerPath: containerCacheFolder }],
    logConfiguration: {
      logDriver: "awslogs",
      options: { "awslogs-group": `/ecs/${name}`, "awslogs-region": region, "awslogs-stream-prefix": "fovea" },
    },
  };
}

/** Waiting and leased messages for each worker. Without a worker every message counts, so the first wakes one. */
function scalingOf({ name, replicas, concurrency }: Deployment, queue: SqsQueue) {
  if (replicas.min === replicas.max) return {};
  const sizeOf = (id: string, metricName: string) => ({
    id,
    metric_stat: {
      stat: "Average",
      metric: {
        namespace: "AWS/SQS",
        metric_name: metricName,
        dimensions: [{ name: "QueueName", value: queue.name }],
      },
    },
    return_data: false,
  });
  return {
    aws_appautoscaling_target: {
      fovea: {
        service_namespace: "ecs",
        resource_id: `service/\${var.cluster}/${name}`,
        scalable_dimension: "ecs:service:DesiredCount",
        min_capacity: replicas.min,
        max_capacity: replicas.max,
        depends_on: ["aws_ecs_service.fovea"],
      },
    },
    aws_appautoscaling_policy: {
      jobs: {
        name: `${name}-jobs`,
        policy_type: "TargetTrackingScaling",
        service_namespace: "${aws_appautoscaling_target.fovea.service_namespace}",
        resource_id: "${aws_appautoscaling_target.fovea.resource_id}",
        scalable_dimension: "${aws_appautoscaling_target.fovea.scalable_dimension}",
        target_tracking_scaling_policy_configuration: {
          target_value: concurrency,
          scale_in_cooldown: COOLDOWN_SECONDS,
          scale_out_cooldown: 60,
          customized_metric_specification: {
            metrics: [
              sizeOf("waiting", "ApproximateNumberOfMessagesVisible"),
              sizeOf("leased", "ApproximateNumberOfMessagesNotVisible"),
              {
                id: "running",
                metric_stat: {
                  stat: "Average",
                  metric: {
                    namespace: "ECS/ContainerInsights",
                    metric_name: "RunningTaskCount",
                    dimensions: [
                      { name: "ClusterName", value: "${var.cluster}" },
                      { name: "ServiceName", value: name },
                    ],
                  },
                },
                return_data: false,
              },
              {
                id: "jobs_per_worker",
                expression: "(waiting + leased) / IF(FILL(running, 0) > 0, FILL(running, 0), 1)",
                return_data: true,
              },
            ],
          },
        },
      },
    },
  };
}
