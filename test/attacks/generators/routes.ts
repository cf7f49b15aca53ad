/** All routes of the application: a new one is attacked without a change here. */
import { createTestApp } from "../../support/service/test-app.ts";

export interface Route {
  readonly method: string;
  /** With parameters in Hono's notation: `/v1/files/:file/content`. */
  readonly path: string;
}

/** Without middleware. */
export const routes: readonly Route[] = createTestApp()
  .app.routes.filter(({ method, path }) => method !== "ALL" && !path.includes("*"))
  .map(({ method, path }) => ({ method, path }));

export function nameOf({ method, path }: Route): string {
  return `${method} ${path}`;
}

/** The path with values for all its parameters. */
export function fillPath(path: string, value: string): string {
  return path.replaceAll(/:\w+(?:\{[^}]*\})?/g, () => value);
}
