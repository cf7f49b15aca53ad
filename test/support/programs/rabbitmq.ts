/** The RabbitMQ server of the tests. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";

import { ensureDebianPackages, isAptAvailable } from "./debian-packages.ts";
import { findProgram, locate } from "./locate.ts";

/**
 * Returns the path of `rabbitmq-server`, the script in the `sbin` folder of the server's home. Below the same root are
 * Erlang's programs, unless they are the system's.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export async function ensureRabbitMqServer(): Promise<string> {
  return locate({
    name: "RabbitMQ",
    variable: "RABBITMQ_SERVER",
    fetch: isAptAvailable() ? fetchRabbitMq : null,
    system: ["/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"],
    debianPackages: "rabbitmq-server",
  });
}

async function fetchRabbitMq(): Promise<string> {
  const folder = await ensureDebianPackages({ packages: ["rabbitmq-server"], programs: [], megabytes: 34 });
  const versions = join(folder, "usr/lib/rabbitmq/lib");
  const [name] = await readdir(versions);
  if (name === undefined) throw new Error(`${versions} is empty.`);
  return join(versions, name, "sbin/rabbitmq-server");
}

/** The folder of Erlang's programs that belongs to a server: beside it in the packages, or the system's. */
export async function erlangOf(rabbitMqServer: string): Promise<string> {
  const root = /^(.*)\/lib\/rabbitmq\//.exec(rabbitMqServer)?.[1];
  const home = root === undefined ? null : join(root, "lib/erlang");
  if (home !== null && findProgram(join(home, "bin/erl")) !== null) return home;
  return "/usr/lib/erlang";
}
