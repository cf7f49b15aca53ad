/** Merges a LoRA adapter into the weights of its base model. */
import { createHash } from "node:crypto";

import { EngineError } from "../../contract/errors.ts";
import type { Checkpoint } from "../checkpoint.ts";
import type { StoredTensor } from "../stored-tensor.ts";
import type { AdapterOrigin } from "./adapter-origin.ts";
import { readAdapter, type Adapter, type AdapterOptions } from "./read-adapter.ts";

const origin: AdapterOrigin = { label: "The LoRA adapter", setting: "loraAdapter" };

/**
 * The checkpoint with the updates of an adapter, which are added when weights are prepared. Tensors that the adapter
 * has as a whole (`modules_to_save`, biases) take the place of the checkpoint's.
 *
 * @param folder See `readAdapter`.
 * @throws EngineError Like `readAdapter`, and `invalid_configuration` for weights that stay quantised.
 */
export async function withAdapter(
  checkpoint: Checkpoint,
  folder: string,
  options: AdapterOptions,
): Promise<Checkpoint> {
  const adapter = await readAdapter(checkpoint, folder, { ...options, origin });
  const tensors = new Map(checkpoint.tensors);
  for (const [name, update] of adapter.updates) {
    const tensor = tensors.get(name)!;
    requireFloats(tensor);
    tensors.set(name, { ...tensor, update });
  }
  for (const [name, whole] of adapter.wholes) tensors.set(name, whole);
  return {
    ...checkpoint,
    tensors,
    adapter: describe(adapter),
    async contentHash({ signal, files } = {}) {
      // The base model's own files: the adapter's are hashed below.
      const ofBase = files ?? [...new Set([...checkpoint.tensors.values()].map((tensor) => tensor.file))].sort();
      const hash = createHash("sha256").update(await checkpoint.contentHash({ signal, files: ofBase }));
      return hash.update(await adapter.contentHash(signal)).digest("hex");
    },
  };
}

function requireFloats({ name, quantised }: StoredTensor): void {
  if (quantised?.kind !== "grouped") return;
  throw new EngineError(
    "invalid_configuration",
    `The LoRA adapter changes ${name}, which this model stores in integers that stay as they are. Make it a LoRA module, which requests choose, or take the model without quantisation and set the dtype to int4 or int8.`,
    { setting: "loraAdapter" },
  );
}

/** Such as "LoRA of rank 8, 24 matrices". */
function describe({ updates, wholes }: Adapter): string {
  const ranks = [...updates].filter(([name]) => !wholes.has(name)).map(([, { down }]) => down.shape[0]!);
  const [lowest, highest] = [Math.min(...ranks), Math.max(...ranks)];
  const parts = [
    ...(ranks.length === 0
      ? []
      : [`LoRA of rank ${lowest === highest ? lowest : `${lowest} to ${highest}`}, ${ranks.length} matrices`]),
    ...(wholes.size === 0 ? [] : [`${wholes.size} whole tensors`]),
  ];
  return parts.join(", ");
}
