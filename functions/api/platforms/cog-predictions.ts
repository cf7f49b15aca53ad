/** Predictions of Cog that are running, so that a client can join one again after it lost its connection, or end it. */
import { EngineError } from "../../../engine/index.ts";

/** Mutable. */
export interface CogPrediction {
  readonly id: string | null;
  /** Its abort ends the work. */
  readonly controller: AbortController;
  /** Chunks of a streamed prediction, from the first on, for clients that join late. */
  readonly chunks: object[];
  /** Null while it runs. */
  end: CogEnd | null;
  /** Resolves when there is a new chunk, or the prediction has ended; it is then replaced. */
  changed: PromiseWithResolvers<void>;
}

export type CogEnd =
  | { readonly status: "succeeded"; readonly output: unknown; readonly seconds: number }
  /** Canceled, too, is an error: the reason of the controller. */
  | { readonly status: "failed" | "canceled"; readonly error: unknown; readonly seconds: number };

/** Resolves to the output. Ends when the controller of its prediction aborts. */
type CogWork = (addChunk: (chunk: object) => void) => Promise<unknown>;

/** Mutable. A prediction is visible to its tenant alone, and only while it runs. */
export class CogPredictions {
  readonly #running = new Map<string, CogPrediction>();

  /** Null if the tenant runs no prediction with this id. */
  find(tenant: string, id: string): CogPrediction | null {
    return this.#running.get(keyOf(tenant, id)) ?? null;
  }

  /** Work that is streamed calls `addChunk`. */
  start(tenant: string, id: string | null, controller: AbortController, work: CogWork): CogPrediction {
    const prediction: CogPrediction = {
      id,
      controller,
      chunks: [],
      end: null,
      changed: Promise.withResolvers(),
    };
    if (id !== null) this.#running.set(keyOf(tenant, id), prediction);
    void this.#run(prediction, tenant, work);
    return prediction;
  }

  async #run(prediction: CogPrediction, tenant: string, work: CogWork): Promise<void> {
    const { id, controller, chunks } = prediction;
    const start = performance.now();
    const seconds = (): number => Math.round(performance.now() - start) / 1000;
    try {
      const output = await work((chunk) => {
        chunks.push(chunk);
        announce(prediction);
      });
      prediction.end = { status: "succeeded", output, seconds: seconds() };
    } catch (error) {
      const { aborted, reason } = controller.signal;
      prediction.end = aborted
        ? { status: "canceled", error: reason, seconds: seconds() }
        : { status: "failed", error, seconds: seconds() };
    }
    if (id !== null) this.#running.delete(keyOf(tenant, id));
    announce(prediction);
  }
}

export function cancel({ controller }: CogPrediction): void {
  controller.abort(new EngineError("aborted", "The prediction was canceled."));
}

function announce(prediction: CogPrediction): void {
  prediction.changed.resolve();
  prediction.changed = Promise.withResolvers();
}

function keyOf(tenant: string, id: string): string {
  return JSON.stringify([tenant, id]);
}
