/** LiteLLM's proxy in front of a service, on a free port. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";

import { ensurePythonClients } from "../../../support/programs/python-clients.ts";
import { freePort } from "../../../support/servers/free-port.ts";
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
/** Its imports take 3 seconds, and minutes where other tests use all processors. */
const START_TIMEOUT_MS = 400_000;
/** Another process may take the port between the question for a free one and the start. */
const MAX_STARTS = 3;
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
  for (let start = 1; ; start += 1) {
    const proxy = await tryStart(configFile, folder);
    if ("baseUrl" in proxy) return proxy;
    if (start === MAX_STARTS || !proxy.output.includes("address already in use")) {
      throw new Error(`LiteLLM's proxy did not start: ${proxy.output.slice(-2000)}`);
    }
  }
}

/** Returns the proxy, or what it printed if it ended or did not answer in time. */
async function tryStart(configFile: string, folder: string): Promise<LiteLlmProxy | { readonly output: string }> {
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
  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null;
  const stop = async (): Promise<void> => {
    process.off("exit", endWithUs);
    if (!isRunning()) return;
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  };
  const baseUrl = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (isRunning() && Date.now() < deadline) {
    if (await isAlive(baseUrl)) return { baseUrl, apiKey, [Symbol.asyncDispose]: stop };
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
  }
  await stop();
  return { output };
}

async function isAlive(baseUrl: string): Promise<boolean> {
  return fetch(`${baseUrl}/health/liveliness`).then(
    ({ ok }) => ok,
    () => false,
  );
}
