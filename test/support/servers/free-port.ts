import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";

/** Programs with ports of their own are mostly below. */
const LOWEST_PORT = 10_000;
/** Of Linux; other systems start higher. */
const FIRST_SYSTEM_PORT = 32_768;

/**
 * A free port for programs that do not print the port that the system chose, and for places where nothing listens. It is
 * none of those that the system gives to connections and to servers without a port of their own: with thousands of both
 * in a run, another test would get it before it is used.
 */
export async function freePort(): Promise<number> {
  const end = firstSystemPort();
  for (;;) {
    const port = LOWEST_PORT + Math.floor(Math.random() * (end - LOWEST_PORT));
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
  } catch {
    return false;
  }
  server.close();
  await once(server, "close");
  return true;
}

function firstSystemPort(): number {
  try {
    const [first] = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "latin1").split("\t");
    return Math.max(Number(first), LOWEST_PORT + 1_000);
  } catch {
    return FIRST_SYSTEM_PORT;
  }
}
