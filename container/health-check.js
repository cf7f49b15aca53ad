/**
 * The image's HEALTHCHECK: exits with 0 if /livez says that the process needs no restart. JavaScript, so that no probe
 * loads the type stripper, and `node:http`, which loads faster than `fetch`.
 */
import { readFileSync } from "node:fs";
import { get } from "node:http";

/** Less than the HEALTHCHECK's own timeout, which would kill the probe without a message. */
const TIMEOUT_MS = 4000;

/** The arguments of the container's first process, each with a zero byte at its end. */
const commandLine = process.argv[2] ?? "/proc/1/cmdline";

/** Commands that open no port: they are healthy while they run. */
const commandsWithoutPort = ["batch", "check", "render"];

/** The word after the program; undefined without one. */
function findCommand() {
  const words = readCommandLine();
  const program = words.findIndex((word) => word.endsWith("/functions/cli/main.js"));
  return program === -1 ? undefined : words[program + 1];
}

/** As in functions/cli/arguments.ts: `--port 80` and `--port=80`; the last one counts. @param {string} name */
function flagOf(name) {
  const flag = `--${name.toLowerCase().replaceAll("_", "-")}`;
  const words = readCommandLine();
  const values = words.flatMap((word, index) => {
    if (word.replaceAll("_", "-") === flag) return [words[index + 1] ?? ""];
    return word.replace(/=.*/s, "").replaceAll("_", "-") === flag ? [word.slice(flag.length + 1)] : [];
  });
  return values.at(-1);
}

/** Empty if it cannot be read: then the environment says all. */
function readCommandLine() {
  try {
    return readFileSync(commandLine, "utf8").split("\0");
  } catch {
    return [];
  }
}

/** @param {string} name */
const valueOf = (name) => (flagOf(name) ?? process.env[name])?.trim() ?? "";
if (commandsWithoutPort.includes(findCommand() ?? "")) process.exit(0);
// As in functions/settings/config.ts, where empty text counts as unset.
const port = valueOf("AIP_HTTP_PORT") || valueOf("SAGEMAKER_BIND_TO_PORT") || valueOf("PORT") || "8000";
/** Addresses that stand for all, with those at which they answer; :: may be without IPv4. */
const loopbackOf = { "": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1" };
const host = Object.entries(loopbackOf).find(([name]) => name === valueOf("HOST"))?.[1] ?? valueOf("HOST");

get({ host, port: Number(port), path: "/livez", timeout: TIMEOUT_MS }, (response) => {
  process.exit(response.statusCode === 200 ? 0 : 1);
})
  .on("timeout", () => fail(`no answer within ${TIMEOUT_MS} ms`))
  .on("error", (error) => fail(error.message));

/** @param {string} reason */
function fail(reason) {
  process.stderr.write(`http://${host}:${port}/livez: ${reason}\n`);
  process.exit(1);
}
