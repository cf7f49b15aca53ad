/**
 * The arguments of Terraform's AWS resources that we render, as documented in website/docs/r of
 * hashicorp/terraform-provider-aws (6.x, read on 2026-11-22). Terraform refuses all others.
 */
import { z } from "zod";

const text = z.string();
const json = text.transform((value, context): unknown => {
  try {
    return JSON.parse(value) as unknown;
  } catch {
    context.addIssue("must be JSON");
    return z.NEVER;
  }
});
const statement = z.strictObject({
  Effect: z.literal("Allow"),
  Action: z.array(text).min(1),
  Resource: z.union([text, z.array(text).min(1)]),
  Condition: z.record(text, z.record(text, z.array(text))).optional(),
});
export const policyDocument = z.strictObject({ Version: z.literal("2012-10-17"), Statement: z.array(statement) });
const trustDocument = z.strictObject({
  Version: z.literal("2012-10-17"),
  Statement: z.tuple([
    z.strictObject({
      Effect: z.literal("Allow"),
      Principal: z.strictObject({ Service: text }),
      Action: z.literal("sts:AssumeRole"),
    }),
  ]),
});

const one = <Shape extends z.ZodType>(shape: Shape) => z.record(text, shape).optional();
const scalable = { service_namespace: text, resource_id: text, scalable_dimension: text };
const dependsOn = z.array(text).optional();
const dimension = z.strictObject({ name: text, value: text });
const metricQuery = z.strictObject({
  id: text,
  expression: text.optional(),
  metric_stat: z
    .strictObject({
      stat: text,
      metric: z.strictObject({ namespace: text, metric_name: text, dimensions: z.array(dimension) }),
    })
    .optional(),
  return_data: z.boolean(),
});

const resources = z.strictObject({
  aws_iam_role: one(z.strictObject({ name: text.max(64), assume_role_policy: json.pipe(trustDocument) })),
  aws_iam_role_policy: one(z.strictObject({ role: text, policy: json.pipe(policyDocument) })),
  aws_s3_bucket: one(z.strictObject({ bucket: text })),
  aws_s3_bucket_public_access_block: one(
    z.strictObject({
      bucket: text,
      block_public_acls: z.literal(true),
      block_public_policy: z.literal(true),
      ignore_public_acls: z.literal(true),
      restrict_public_buckets: z.literal(true),
    }),
  ),
  aws_sqs_queue: one(
    z.strictObject({
      name: text.max(80),
      fifo_queue: z.literal(true).optional(),
      message_retention_seconds: z.int().min(60).max(1_209_600),
      sqs_managed_sse_enabled: z.boolean(),
      visibility_timeout_seconds: z.int().min(0).max(43_200).optional(),
      receive_wait_time_seconds: z.int().min(0).max(20).optional(),
      redrive_policy: text.startsWith("${jsonencode(").optional(),
    }),
  ),
  aws_sagemaker_model: one(
    z.strictObject({
      name: text,
      execution_role_arn: text,
      primary_container: z.strictObject({ image: text, environment: z.record(text, text) }),
      depends_on: dependsOn,
    }),
  ),
  aws_sagemaker_endpoint_configuration: one(
    z.strictObject({
      name_prefix: text,
      production_variants: z.strictObject({
        variant_name: text,
        model_name: text,
        instance_type: text.startsWith("ml."),
        initial_instance_count: z.int().min(1),
        volume_size_in_gb: z.int().min(1).max(512).optional(),
        container_startup_health_check_timeout_in_seconds: z.int().min(60).max(3600),
        inference_ami_version: text,
        routing_config: z.tuple([
          z.strictObject({ routing_strategy: z.enum(["LEAST_OUTSTANDING_REQUESTS", "RANDOM"]) }),
        ]),
      }),
      async_inference_config: z
        .strictObject({
          client_config: z.strictObject({ max_concurrent_invocations_per_instance: z.int().min(1).max(1000) }),
          output_config: z.strictObject({ s3_output_path: text, s3_failure_path: text }),
        })
        .optional(),
      lifecycle: z.strictObject({ create_before_destroy: z.literal(true) }),
    }),
  ),
  aws_sagemaker_endpoint: one(z.strictObject({ name: text, endpoint_config_name: text })),
  aws_appautoscaling_target: one(
    z.strictObject({ ...scalable, min_capacity: z.int(), max_capacity: z.int(), depends_on: dependsOn }),
  ),
  aws_appautoscaling_policy: one(
    z.strictObject({
      name: text,
      policy_type: z.enum(["TargetTrackingScaling", "StepScaling"]),
      ...scalable,
      target_tracking_scaling_policy_configuration: z
        .strictObject({
          target_value: z.number(),
          scale_in_cooldown: z.int(),
          scale_out_cooldown: z.int(),
          predefined_metric_specification: z.strictObject({ predefined_metric_type: text }).optional(),
          customized_metric_specification: z
            .strictObject({
              metric_name: text.optional(),
              namespace: text.optional(),
              statistic: text.optional(),
              dimensions: z.array(dimension).optional(),
              metrics: z.array(metricQuery).optional(),
            })
            .optional(),
        })
        .optional(),
      step_scaling_policy_configuration: z
        .strictObject({
          adjustment_type: text,
          metric_aggregation_type: text,
          cooldown: z.int(),
          step_adjustment: z.array(z.strictObject({ metric_interval_lower_bound: text, scaling_adjustment: z.int() })),
        })
        .optional(),
    }),
  ),
  aws_cloudwatch_metric_alarm: one(
    z.strictObject({
      alarm_name: text,
      namespace: text,
      metric_name: text,
      dimensions: z.record(text, text),
      statistic: text,
      comparison_operator: text,
      threshold: z.number(),
      period: z.int(),
      evaluation_periods: z.int(),
      treat_missing_data: text,
      alarm_actions: z.array(text),
    }),
  ),
  aws_cloudwatch_log_group: one(z.strictObject({ name: text, retention_in_days: z.int() })),
  aws_ecs_task_definition: one(
    z.strictObject({
      family: text,
      requires_compatibilities: z.array(z.enum(["EC2", "FARGATE"])),
      network_mode: text,
      task_role_arn: text,
      execution_role_arn: text,
      container_definitions: json.pipe(z.array(z.looseObject({}))),
      volume: z.array(
        z.strictObject({
          name: text,
          docker_volume_configuration: z.strictObject({ scope: text, autoprovision: z.boolean() }),
        }),
      ),
    }),
  ),
  aws_ecs_service: one(
    z.strictObject({
      name: text,
      cluster: text,
      task_definition: text,
      desired_count: z.int(),
      capacity_provider_strategy: z.array(z.strictObject({ capacity_provider: text, weight: z.int() })),
      lifecycle: z.strictObject({ ignore_changes: z.array(text) }),
    }),
  ),
});

export const terraformModule = z.strictObject({
  terraform: z.strictObject({
    required_version: text,
    required_providers: z.strictObject({ aws: z.strictObject({ source: text, version: text }) }),
  }),
  provider: z.strictObject({ aws: z.strictObject({ region: text.optional() }) }),
  variable: z.record(
    text,
    z.strictObject({
      type: text,
      description: text,
      default: z.null().optional(),
      nullable: z.literal(true).optional(),
    }),
  ),
  data: z.strictObject({ aws_secretsmanager_secret: z.record(text, z.strictObject({ name: text })) }).optional(),
  resource: resources,
  output: z.record(text, z.strictObject({ value: text })),
});

/** Every `${kind.name.field}` of the file whose resource, variable or data source the file does not have. */
export function danglingReferences(fileText: string): string[] {
  const file = JSON.parse(fileText) as Record<string, Record<string, Record<string, unknown>>>;
  const references = [...fileText.matchAll(/\$\{[^}]*\}/g)].flatMap(
    ([expression]) => expression.match(/\b(?:data\.aws|aws|var)[\w]*(?:\.\w+)+/g) ?? [],
  );
  return references.filter((reference) => {
    const [kind = "", name = "", third = ""] = reference.split(".");
    if (kind === "var") return file.variable?.[name] === undefined;
    if (kind === "data") return file.data?.[name]?.[third] === undefined;
    return file.resource?.[kind]?.[name] === undefined;
  });
}
