import type { DeploymentTarget, RenderedFile } from "../../../infra/deployment-target.ts";
import { parseDeployment } from "../../../infra/deployment.ts";

/** Renders a deployment with changed fields. */
export type Render = (changes?: object) => readonly RenderedFile[];

/** A function that renders `description` for the platform. */
export function renderWith(target: DeploymentTarget, description: object): Render {
  return (changes = {}) => target.render(parseDeployment(JSON.stringify({ ...description, ...changes })));
}
