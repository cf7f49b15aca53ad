/** Ends child processes together with our process, however ours ends. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";

/** Reads a pipe that our process holds. A line ends the watcher; the end of the pipe kills the process or group. */
const watcherScript = 'read -r _ || kill -s KILL -- "$0"';

/**
 * Starts a watcher that kills the process when ours ends. The system closes the pipes of a process also after SIGKILL,
 * which runs no handler.
 *
 * @param hasGroup Whether the process leads a group of its own. All of the group then ends with it.
 */
export function endWithRun(child: ChildProcess, { hasGroup = false } = {}): void {
  if (child.pid === undefined) return;
  const target = `${hasGroup ? "-" : ""}${child.pid}`;
  // A group of its own, so that Ctrl-C does not end it.
  const watcher = spawn("/bin/sh", ["-c", watcherScript, target], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  watcher.unref();
  const { stdin } = watcher;
  stdin.on("error", () => {});
  child.once("exit", () => {
    if (hasGroup) stdin.destroy();
    else stdin.end("\n");
  });
}
