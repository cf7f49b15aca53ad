/** The parts of a request's way through the engine, for traces. */

/**
 * `processor_cache`: looking up processed images. `fetch`: the bytes of one image. `image_processing`: decoding and
 * resizing images that no cache had. `queue`: from the engine thread's inbox to the first step. `prefill`: from there to
 * the first token. `decode`: from there to the last token.
 */
export type RequestStageName = "processor_cache" | "fetch" | "image_processing" | "queue" | "prefill" | "decode";

export interface RequestStage {
  readonly name: RequestStageName;
  /** Milliseconds since the epoch, with fractions. */
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
  /** Whether the stage ended with an error. */
  readonly hasFailed?: boolean;
}

/** Receives each stage when it has ended. Must not throw. */
export type OnRequestStage = (stage: RequestStage) => void;

/** Milliseconds since the epoch from a monotonic clock, the same on every thread. */
export function epochMs(): number {
  return performance.timeOrigin + performance.now();
}

/** Runs the work as a stage. Costs nothing without an observer. */
export async function observeStage<Value>(
  name: RequestStageName,
  onStage: OnRequestStage | undefined,
  work: () => Promise<Value>,
  attributesOf: (value: Value) => RequestStage["attributes"] = () => undefined,
): Promise<Value> {
  if (onStage === undefined) return work();
  const startMs = epochMs();
  try {
    const value = await work();
    const attributes = attributesOf(value);
    onStage({ name, startMs, endMs: epochMs(), ...(attributes && { attributes }) });
    return value;
  } catch (error) {
    onStage({ name, startMs, endMs: epochMs(), hasFailed: true });
    throw error;
  }
}
