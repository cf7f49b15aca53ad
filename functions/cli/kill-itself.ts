/** The last way out: `process.exit` waits for threads, and so for one that is in a native call that never returns. */
export function killItself(): void {
  process.kill(process.pid, "SIGKILL");
}
