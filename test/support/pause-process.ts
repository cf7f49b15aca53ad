/** Stops this process for a while, as a platform does that pauses containers: the kernel goes on receiving data. */
export function pauseProcess(pauseMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)), 0, 0, pauseMs);
}
