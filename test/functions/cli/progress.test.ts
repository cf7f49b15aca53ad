import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

const main = new URL("../../../functions/cli/main.js", import.meta.url).pathname;
const processor = new URL("slow-processor.ts", import.meta.url).pathname;

test.for(["SIGINT", "SIGTERM"] as const)("a check that %s ends gives the terminal its cursor back", async (signal) => {
  // script(1) gives the command a terminal and copies what it writes; exec makes its process the command's.
  const command = `exec ${process.execPath} ${main} check --run`;
  const child = spawn("script", ["--quiet", "--return", "--command", command, "/dev/null"], {
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      TERM: "xterm",
      MAX_MODEL_LEN: "128",
      LOGITS_PROCESSORS: `${processor}:Slow`,
    },
    stdio: ["pipe", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const closed = once(child, "close");
  // The first of two, which lasts for seconds.
  while (!output.includes("dummy run of 1 ")) await once(child.stdout, "data");
  const children = await readFile(`/proc/${child.pid}/task/${child.pid}/children`, "utf8");
  // Of none, the number would be 0, which is the group of this process.
  const [pid] = /^\d+/.exec(children)!;
  process.kill(Number(pid), signal);
  await closed;
  expect(output).not.toContain("dummy run of 32");
  expect(output).toContain("\u001b[?25l");
  expect(output.lastIndexOf("\u001b[?25h")).toBeGreaterThan(output.lastIndexOf("\u001b[?25l"));
  expect(output.lastIndexOf("\u001b[?7h")).toBeGreaterThan(output.lastIndexOf("\u001b[?7l"));
});
