/** Memory for the passes over logits that holds one row. */
import { LogitsKernel } from "../../../engine/sampling/logits-kernel.ts";

export function kernelWithRow(row: ArrayLike<number>): LogitsKernel {
  const kernel = new LogitsKernel(1, row.length);
  kernel.logits.set(row);
  return kernel;
}
