/**
 * Provides every program that the tests start, before the first test. Downloads what is missing; later runs need no
 * network.
 */
import { delimiter, dirname } from "node:path";

import { say } from "./cache-folder.ts";
import { ensureChromium, ensureVulkanDriver } from "./chromium.ts";
import { ensureCurl } from "./curl.ts";
import { MissingProgramError } from "./missing-program.ts";
import { ensureNatsServer } from "./nats.ts";
import { ensurePlatformSchemas } from "./platform-schemas.ts";
import { ensurePythonClients } from "./python-clients.ts";
import { ensureRabbitMqServer } from "./rabbitmq.ts";
import { ensureRedisServer } from "./redis.ts";
import { ensureMotoServer } from "./s3.ts";

/** Each sets the variable with the path of its program, so that test processes need not look for it. */
const programs: Readonly<Record<string, () => Promise<string>>> = {
  CHROMIUM: ensureChromium,
  VULKAN_DRIVER: ensureVulkanDriver,
  REDIS_SERVER: ensureRedisServer,
  MOTO_SERVER: ensureMotoServer,
  NATS_SERVER: ensureNatsServer,
  RABBITMQ_SERVER: ensureRabbitMqServer,
  PYTHON_CLIENTS: ensurePythonClients,
  PLATFORM_SCHEMAS: ensurePlatformSchemas,
  PATH: async () => [process.env.PATH, dirname(await ensureCurl())].join(delimiter),
};

/** Ends the test run if programs are missing, with a list of all of them and how to get each. */
export async function setup(): Promise<void> {
  const missing: string[] = [];
  for (const [variable, result] of await settle()) {
    if (result.status === "fulfilled") process.env[variable] = result.value;
    else if (result.reason instanceof MissingProgramError) missing.push(result.reason.message);
    else throw result.reason;
  }
  if (missing.length === 0) return;
  say(`\nThe tests cannot run: programs that they start are missing.\n\n  ${missing.join("\n  ")}\n`);
  // An error thrown here would be reported as an error of the tests' code, and as "No test files found".
  process.exit(1);
}

async function settle() {
  const results = await Promise.allSettled(Object.values(programs).map((ensure) => ensure()));
  return Object.keys(programs).map((variable, index) => [variable, results[index]!] as const);
}
