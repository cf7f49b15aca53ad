/** LiteLLM's proxy in front of a service, on a free port. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

import { ensurePythonClients } from "../../../support/programs/python-clients.ts";
import { pythonEnvironment } from "./python-program.ts";

export interface LiteLlmProxy extends AsyncDisposable {
  readonly baseUrl: string;
  readonly apiKey: string;
}

export interface ProxiedService {
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly model: string;
}

/** The proxy refuses keys that are short or well known. */
const apiKey = "sk-a-key-of-the-proxy-for-its-clients-0123456789";
const START_TIMEOUT_MS = 110_000;
const POLL_INTERVAL_MS = 100;

/** @param folder A folder of the caller's, for the proxy's configuration. */
export async function startLiteLlmProxy(service: ProxiedService, folder: string): Promise<LiteLlmProxy> {
  const configFile = join(folder, "proxy.json");
  const parameters = {
    model: `openai/${service.model}`,
    api_base: `${service.baseUrl}/v1`,
    api_key: service.apiKey,
    max_retries: 0,
  };
  // YAML, which JSON is too.
  const config = {
    model_list: [{ model_name: service.model, litellm_params: parameters }],
    // By default, the proxy sends nothing for 5 seconds after an error of its only service.
    router_settings: { num_retries: 0, disable_cooldowns: true },
  };
  await writeFile(configFile, JSON.stringify(config));
  const port = await freePort();
  const program = "from litellm import run_server; run_server()";
  const args = ["-c", program, "--config", configFile, "--host", "127.0.0.1", "--port", String(port)];
  const child = spawn(await ensurePythonClients(), args, {
    cwd: folder,
    env: { ...process.env, ...pythonEnvironment, LITELLM_MASTER_KEY: apiKey },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const endWithUs = (): void => void child.kill("SIGKILL");
  process.once("exit", endWithUs);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += String(chunk)));
  const baseUrl = `http://127.0.0.1:${port}`;
  const stop = async (): Promise<void> => {
    process.off("exit", endWithUs);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  };
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (!(await isAlive(baseUrl))) {
    if (child.exitCode === null && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
      continue;
    }
    await stop();
    throw new Error(`LiteLLM's proxy did not start: ${output.slice(-2000)}`);
  }
  return { baseUrl, apiKey, [Symbol.asyncDispose]: stop };
}

async function isAlive(baseUrl: string): Promise<boolean> {
  return fetch(`${baseUrl}/health/liveliness`).then(
    ({ ok }) => ok,
    () => false,
  );
}

/** The proxy does not print the port that the system chose for port 0. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
