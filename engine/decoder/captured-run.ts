/** Runs of one shape that become a captured CUDA graph, or stay eager where that fails. */
import process from "node:process";

import { EngineError } from "../contract/errors.ts";
import type { RunOptions } from "../runtime/run-options.ts";

/** Runs the shape's binding once: eagerly for null, else as these options say. */
type RunShape = (graph: Pick<RunOptions, "handle"> | null) => void;

/** Mutable. */
export class CapturedRun {
  readonly #run: RunShape;
  readonly #mayCapture: () => boolean;
  #graph: Pick<RunOptions, "handle"> | null;
  #numRuns = 0;
  #isCaptured = false;

  /**
   * @param graph Options that name the graph; null if the session captures none.
   * @param mayCapture Whether a graph can be captured now. Default: always.
   */
  constructor(run: RunShape, graph: Pick<RunOptions, "handle"> | null, mayCapture: () => boolean = () => true) {
    this.#run = run;
    this.#graph = graph;
    this.#mayCapture = mayCapture;
  }

  /**
   * The first run is eager: a shape that is used once is not worth a capture, which computes it three times. The second
   * one captures the graph, and all others replay it. If the capture fails, for example because the device has no memory
   * for the graph, this run and all later ones are eager.
   *
   * @throws EngineError `runtime_failed` or `out_of_memory` of an eager run or a replay; `device_lost`.
   */
  run(): void {
    const graph = ++this.#numRuns > 1 ? this.#graph : null;
    if (graph === null || (!this.#isCaptured && !this.#mayCapture())) return this.#run(null);
    try {
      this.#run(graph);
      this.#isCaptured = true;
    } catch (error) {
      if (this.#isCaptured || !(error instanceof EngineError) || !isFailedCapture(error)) throw error;
      this.#graph = null;
      process.emitWarning(
        `A step could not be captured as a CUDA graph, so steps of its shape run without one: ${error.message}`,
      );
      this.#run(null);
    }
  }
}

function isFailedCapture({ code }: EngineError): boolean {
  return code === "runtime_failed" || code === "out_of_memory";
}
