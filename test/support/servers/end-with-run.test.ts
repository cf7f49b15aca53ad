/** Servers and programs of the tests end with the process that started them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";

/** Starts a server that starts another program, and a program without a group, and prints their process ids. */
const program = `
  import { startServerProcess } from "./test/support/servers/server-process.ts";
  import { spawn } from "node:child_process";
  import { endWithRun } from "./test/support/servers/end-with-run.ts";
  const args = ["-c", 'sleep 600 & echo "ready $!"; wait'];
  const server = await startServerProcess({ name: "server", program: "sh", args, readyText: /ready (\\d+)/ });
  const single = spawn("sleep", ["600"], { stdio: "ignore" });
  endWithRun(single);
  console.log(JSON.stringify([server.child.pid, Number(/ready (\\d+)/.exec(server.output)[1]), single.pid]));
`;

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

test.for(["SIGKILL", "SIGINT", "SIGTERM"] as const)(
  "servers, their children and other programs end when %s ends their run",
  async (signal) => {
    const run = spawn(process.execPath, ["--input-type=module", "--eval", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [output] = (await once(run.stdout, "data")) as [Buffer];
    const pids = JSON.parse(output.toString()) as number[];
    expect(pids.map(isRunning)).toEqual([true, true, true]);
    run.kill(signal);
    await once(run, "exit");
    await expect.poll(() => pids.map(isRunning)).toEqual([false, false, false]);
  },
);

test("a server that ends by itself takes the programs that it started along", async () => {
  const run = spawn(process.execPath, ["--input-type=module", "--eval", `${program}; server.child.kill("SIGKILL");`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [output] = (await once(run.stdout, "data")) as [Buffer];
  const [serverPid, childPid, singlePid] = JSON.parse(output.toString()) as [number, number, number];
  await expect.poll(() => [serverPid, childPid].map(isRunning)).toEqual([false, false]);
  expect(isRunning(singlePid)).toBe(true);
  run.kill("SIGKILL");
  await expect.poll(() => isRunning(singlePid)).toBe(false);
});
