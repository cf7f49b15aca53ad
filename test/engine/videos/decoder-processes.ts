/** The decoding processes of this test, as the system sees them. Linux only. */
import { readdirSync, readFileSync } from "node:fs";

/** Their ids; of another process if `parent` is given. */
export function decoderProcessIds(parent: number = process.pid): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((id) => {
      try {
        // Behind the name, which may contain spaces: state and parent.
        const [, ofParent] = /\) \S (\d+) /.exec(readFileSync(`/proc/${id}/stat`, "latin1")) ?? [];
        return (
          Number(ofParent) === parent && readFileSync(`/proc/${id}/cmdline`, "latin1").includes("decoder-process-main")
        );
      } catch {
        // It has ended meanwhile.
        return false;
      }
    })
    .map(Number);
}

/**
 * Blocks this thread until the process has written `numBytes`: it is then in the middle of its work, because this thread
 * reads nothing and the pipe is full.
 */
export function waitUntilWritten(id: number, numBytes: number): void {
  const sleeping = new Int32Array(new SharedArrayBuffer(4));
  for (;;) {
    const [, numWritten] = /^wchar: (\d+)$/m.exec(readFileSync(`/proc/${id}/io`, "latin1")) ?? [];
    if (Number(numWritten) >= numBytes) return;
    Atomics.wait(sleeping, 0, 0, 5);
  }
}
