/** The last resort: `process.exit` waits for threads, also for one in a native call that never returns. */
export function killItself(): void {
  process.kill(process.pid, "SIGKILL");
}
