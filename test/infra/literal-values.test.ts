/** Values of a deployment reach the service as they are, also where a platform reads more into a text. */
import { describe, expect, test } from "vitest";
import { parse } from "yaml";

import { azureContainerApps } from "../../infra/azure-container-apps.ts";
import { cloudRun } from "../../infra/cloud-run.ts";
import type { DeploymentTarget } from "../../infra/deployment-target.ts";
import { ecs } from "../../infra/ecs.ts";
import { inferencePool } from "../../infra/inference-pool.ts";
import { knative } from "../../infra/knative.ts";
import { kserveLlm } from "../../infra/kserve-llm.ts";
import { kserve } from "../../infra/kserve.ts";
import { kubernetes } from "../../infra/kubernetes.ts";
import { kustomize } from "../../infra/kustomize.ts";
import { sageMaker } from "../../infra/sagemaker.ts";
import { vertexAi } from "../../infra/vertex-ai.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { danglingReferences } from "../support/deployments/terraform-schema.ts";

const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cpu" },
  resources: { cpu: 4, memoryGiB: 8 },
  replicas: { min: 1, max: 1 },
  timeouts: { requestSeconds: 60 },
};

/** The values of a variable in all objects of the files. */
function valuesOf(target: DeploymentTarget, name: string, changes: object): string[] {
  const found: string[] = [];
  const visit = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    if ("name" in node && node.name === name && "value" in node) found.push(String(node.value));
    if (name in node) found.push(String(Reflect.get(node, name)));
    for (const child of Object.values(node)) visit(child);
  };
  for (const { text } of renderWith(target, description)(changes)) visit(parse(text));
  return found;
}

describe("on Azure", () => {
  test.for([
    ['[{"class": "module:Class"}]', '[[{"class": "module:Class"}]'],
    ["[parameters('identityId')]", "[[parameters('identityId')]"],
    // The documentation says to leave it: the template takes it for a text.
    ["[a] and b", "[a] and b"],
    ["a[0]", "a[0]"],
  ])("a text within brackets is no expression of the template: %s", ([value, expected]) => {
    expect(valuesOf(azureContainerApps, "CHAT_TEMPLATE", { environment: { CHAT_TEMPLATE: value } })).toEqual([
      expected,
    ]);
  });

  test("neither is the name of a queue that KEDA counts", () => {
    const environment = { JOB_SOURCE: "amqp://rabbit/?queue=[jobs]" };
    const rendered = renderWith(
      azureContainerApps,
      description,
    )({
      worker: true,
      environment,
      replicas: { min: 0, max: 1 },
    });
    expect(rendered[0]!.text).toContain('"queueName": "[[jobs]"');
  });
});

describe("in Terraform", () => {
  // Terraform 1.x evaluates each to the text before it.
  const cases = [
    ["a ${b} c", "a $${b} c"],
    ["%{ if a }b%{ endif }", "%%{ if a }b%%{ endif }"],
    ["$${a}", "$$${a}"],
    ["$ % {} $a 5%", "$ % {} $a 5%"],
  ] as const;

  test.for(cases)("a value on SageMaker is no template: %s", ([value, expected]) => {
    const environment = { CHAT_TEMPLATE: value };
    expect(valuesOf(sageMaker, "CHAT_TEMPLATE", { environment })).toEqual([expected]);
  });

  test.for(cases)("a value on ECS is no template: %s", ([value, expected]) => {
    const JOB_SOURCE = "sqs://sqs.eu-west-1.amazonaws.com/123456789012/pictures";
    const [file] = renderWith(ecs, description)({ worker: true, environment: { JOB_SOURCE, CHAT_TEMPLATE: value } });
    const { resource } = JSON.parse(file!.text);
    const [container] = JSON.parse(resource.aws_ecs_task_definition.fovea.container_definitions);
    expect(container.environment).toContainEqual({ name: "CHAT_TEMPLATE", value: expected });
  });

  test("addresses are no templates either, and expressions of the module stay", () => {
    const [file] = renderWith(
      sageMaker,
      description,
    )({ model: "s3://models/${a}", asyncOutput: "s3://answers/${b}", replicas: { min: 0, max: 1 } });
    expect(file!.text.replaceAll("$${", "")).not.toMatch(/\$\{[ab]\}/);
    expect(file!.text).toContain("arn:aws:s3:::models/$${a}/*");
    expect(file!.text).toContain("s3://answers/$${b}/results/");
    expect(file!.text).toContain('"${aws_iam_role.fovea.arn}"');
    expect(danglingReferences(file!.text.replaceAll("$${", ""))).toEqual([]);
  });
});

describe("on Kubernetes", () => {
  const targets = [kubernetes, kustomize, inferencePool, knative, kserve, kserveLlm, vertexAi];
  const platforms = targets.map((target) => [target.name, target] as const);
  const cases = [
    ["$(MODEL)", "$$(MODEL)"],
    ["$$(MODEL)", "$$$$(MODEL)"],
    ["a$$b", "a$$$b"],
    ["$5, ${a} and $", "$5, ${a} and $"],
  ] as const;

  test.for(platforms)("a value refers to no other variable: %s", ([, target]) => {
    for (const [value, expected] of cases) {
      expect(valuesOf(target, "CHAT_TEMPLATE", { environment: { CHAT_TEMPLATE: value } })).toEqual([expected]);
      expect(expand(expected)).toBe(value);
    }
  });

  test("Cloud Run knows no references, so values stay", () => {
    const environment = { CHAT_TEMPLATE: "$(MODEL) $$" };
    expect(valuesOf(cloudRun, "CHAT_TEMPLATE", { environment })).toEqual(["$(MODEL) $$"]);
  });
});

/** As kubelet does with MODEL set: k8s.io/kubernetes/third_party/forked/golang/expansion. */
function expand(value: string): string {
  return value.replaceAll(/\$\$|\$\(([^)]*)\)/g, (match, name?: string) =>
    match === "$$" ? "$" : name === "MODEL" ? "expanded" : match,
  );
}
