/** Starts a real RabbitMQ on free ports, with Erlang's port mapper of its own. */
import { chmod, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { ensureRabbitMqServer, erlangOf } from "../programs/rabbitmq.ts";
import { createTemporaryFolder } from "../temporary-folder.ts";
import { freePort } from "./free-port.ts";
import { startServerProcess } from "./server-process.ts";

export interface RabbitMqServer extends AsyncDisposable {
  /** With the credentials of its administrator. */
  readonly url: string;
  /** A crash and another start with the same port and durable queues. */
  restart(): Promise<void>;
}

/** Between two looks of a channel for messages that took too long. */
const CHANNEL_TICK_MS = 100;

/** @param consumerTimeoutMs How long a worker may have a message. Default: RabbitMQ's. */
export async function startRabbitMqServer({
  consumerTimeoutMs,
}: { readonly consumerTimeoutMs?: number } = {}): Promise<RabbitMqServer> {
  const program = await ensureRabbitMqServer();
  const erlang = await erlangOf(program);
  const folder = await createTemporaryFolder();
  const [port, mapperPort, distributionPort] = [await freePort(), await freePort(), await freePort()];
  const environment = {
    PATH: [folder.path, join(erlang, "bin"), process.env.PATH].join(":"),
    LD_LIBRARY_PATH: (await librariesBeside(erlang)).join(":"),
    HOME: folder.path,
    ERL_EPMD_PORT: String(mapperPort),
    ERL_EPMD_ADDRESS: "127.0.0.1",
    RABBITMQ_HOME: dirname(dirname(program)),
    RABBITMQ_SCRIPTS_DIR: dirname(program),
    RABBITMQ_NODENAME: `fovea-${port}@localhost`,
    RABBITMQ_NODE_IP_ADDRESS: "127.0.0.1",
    RABBITMQ_NODE_PORT: String(port),
    RABBITMQ_DIST_PORT: String(distributionPort),
    RABBITMQ_MNESIA_BASE: join(folder.path, "data"),
    RABBITMQ_LOG_BASE: join(folder.path, "log"),
    RABBITMQ_LOGS: "-",
    RABBITMQ_ENABLED_PLUGINS_FILE: join(folder.path, "plugins"),
    RABBITMQ_CONF_ENV_FILE: join(folder.path, "environment"),
    RABBITMQ_PID_FILE: join(folder.path, "pid"),
    RABBITMQ_ADVANCED_CONFIG_FILE: join(folder.path, "advanced.config"),
  };
  if (consumerTimeoutMs !== undefined) {
    const settings = `{consumer_timeout, ${consumerTimeoutMs}}, {channel_tick_interval, ${CHANNEL_TICK_MS}}`;
    await writeFile(environment.RABBITMQ_ADVANCED_CONFIG_FILE, `[{rabbit, [${settings}]}].`);
  }
  const programs = await programsOf(erlang);
  await writeLauncher(join(folder.path, "erl"), erlang, programs);
  // Erlang would start it as a daemon, which outlives the test.
  const mapper = await startServerProcess({
    name: "epmd",
    program: join(programs, "epmd"),
    args: ["-d"],
    environment,
    readyText: "epmd running",
  });
  const readyText = "Server startup complete";
  const start = () => startServerProcess({ name: "rabbitmq-server", program, args: [], environment, readyText });
  let server = await start();
  return {
    url: `amqp://guest:guest@127.0.0.1:${port}/%2f`,
    async restart() {
      await server.kill();
      server = await start();
    },
    async [Symbol.asyncDispose]() {
      await server.kill();
      await mapper.kill();
      await folder[Symbol.asyncDispose]();
    },
  };
}

/** Erlang's own scripts expect the folder in which it was installed. */
async function writeLauncher(path: string, erlang: string, programs: string): Promise<void> {
  const lines = [
    "#!/bin/sh",
    `export ROOTDIR='${erlang}' BINDIR='${programs}' EMU=beam PROGNAME=erl`,
    'exec "$BINDIR/erlexec" "$@"',
    "",
  ];
  await writeFile(path, lines.join("\n"));
  await chmod(path, 0o755);
}

async function librariesBeside(erlang: string): Promise<string[]> {
  const parent = dirname(erlang);
  return (await readdir(parent)).filter((name) => name.endsWith("-linux-gnu")).map((name) => join(parent, name));
}

async function programsOf(erlang: string): Promise<string> {
  const name = (await readdir(erlang)).find((entry) => entry.startsWith("erts-"));
  if (name === undefined) throw new Error(`${erlang} has no Erlang runtime.`);
  return join(erlang, name, "bin");
}
