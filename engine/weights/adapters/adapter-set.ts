/** LoRA adapters beside the weights of their base model, of which each request may choose one. */
import { EngineError } from "../../contract/errors.ts";
import type { Checkpoint } from "../checkpoint.ts";
import { rankOf, type NamedAdapter } from "./named-adapter.ts";
import { readAdapter, type Adapter, type AdapterOptions } from "./read-adapter.ts";

/**
 * The checkpoint with adapters that leave its weights as they are.
 *
 * @param folders By the names of the adapters; see `readAdapter`.
 * @throws EngineError Like `readAdapter`, and `invalid_configuration` for an adapter that can only be merged.
 */
export async function withNamedAdapters(
  checkpoint: Checkpoint,
  folders: ReadonlyMap<string, string>,
  options: AdapterOptions,
): Promise<Checkpoint> {
  if (folders.size === 0) return checkpoint;
  const adapters: NamedAdapter[] = [];
  for (const [name, folder] of folders) {
    const origin = { label: `The LoRA adapter ${name}`, setting: "loraModules" } as const;
    const adapter = await readAdapter(checkpoint, folder, { ...options, origin });
    requireUpdatesOnly(name, adapter);
    const { updates, contentHash } = adapter;
    adapters.push({ name, rank: Math.max(...[...updates.values()].map(rankOf)), updates, contentHash });
  }
  return { ...checkpoint, adapters };
}

/** @throws EngineError `invalid_configuration` for an update of a tensor that is not among `tensors`. */
export function requireTensorsOf(adapters: readonly NamedAdapter[], tensors: ReadonlySet<string>): void {
  for (const { name, updates } of adapters) {
    for (const tensor of updates.keys()) if (!tensors.has(tensor)) throw mustBeMerged(name, `changes ${tensor}`);
  }
}

function requireUpdatesOnly(name: string, { updates, wholes }: Adapter): void {
  const [whole] = wholes.keys();
  if (whole !== undefined) throw mustBeMerged(name, `replaces ${whole}`);
  for (const [tensor, { magnitudes }] of updates) {
    if (magnitudes !== null) throw mustBeMerged(name, `changes the lengths of the rows of ${tensor} (DoRA)`);
  }
}

function mustBeMerged(name: string, reason: string): EngineError {
  return new EngineError(
    "invalid_configuration",
    `The LoRA adapter ${name} ${reason}, which a request cannot choose: only updates of the decoder's linear layers ` +
      "stay apart from the weights. Make it the LoRA adapter of all requests instead of a LoRA module.",
    { setting: "loraModules" },
  );
}
