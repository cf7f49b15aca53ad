/** `fovea serve` as the container's process, with the environment of the image and of a platform. */
import { once } from "node:events";
import { fileURLToPath } from "node:url";

import { startServerProcess } from "../servers/server-process.ts";
import { testDataHome } from "./test-data-home.ts";

const mainPath = fileURLToPath(new URL("../../../functions/cli/main.js", import.meta.url));

export interface ContainerProcess extends AsyncDisposable {
  /** Sends SIGTERM, as platforms do, and resolves to the exit code. */
  stop(): Promise<number | null>;
}

/** Resolves when requests are served. */
export async function startContainer(environment: Readonly<Record<string, string>>): Promise<ContainerProcess> {
  const server = await startServerProcess({
    name: "fovea serve",
    program: process.execPath,
    // The argument with which SageMaker runs an image.
    args: [mainPath, "serve"],
    environment: { ...process.env, HOST: "127.0.0.1", PORT: "8000", XDG_DATA_HOME: testDataHome, ...environment },
    readyText: '"Ready."',
  });
  return {
    async stop() {
      const exited = once(server.child, "exit");
      server.child.kill("SIGTERM");
      const [code] = (await exited) as [number | null];
      return code;
    },
    [Symbol.asyncDispose]: async () => server.kill(),
  };
}
