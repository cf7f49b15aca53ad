/** The parts of an engine's start whose times are measured. */

/**
 * `modules`: importing the engine's modules. `runtime`: loading ONNX Runtime's library, on the engine's thread beside the others. `download`: the checkpoint's
 * files. `quantise`: converting weights; next to nothing if the cache folder has them. `preload`: reading the weights ahead, beside
 * the phases that follow; only if the settings ask for it. `build`: everything else before
 * sessions are created, such as the tokenizer, the graphs and the hash of the weights. `load`: the sessions, their
 * weights and the KV cache. `first_step`: the first step of the warm-up. `first_image`:
 * its picture in the vision encoder, for models with images.
 */
export const startPhases = [
  "modules",
  "runtime",
  "download",
  "quantise",
  "build",
  "preload",
  "load",
  "first_step",
  "first_image",
] as const;
export type StartPhase = (typeof startPhases)[number];

/** Receives each phase at most once, when it has ended. */
export type OnStartPhase = (phase: StartPhase, seconds: number) => void;

/** Reports the time of the phase also if the work fails. */
export async function timePhase<Value>(
  phase: StartPhase,
  onPhase: OnStartPhase | undefined,
  work: () => Promise<Value>,
): Promise<Value> {
  const start = performance.now();
  try {
    return await work();
  } finally {
    onPhase?.(phase, (performance.now() - start) / 1000);
  }
}
