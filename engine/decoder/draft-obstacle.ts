/** Why a decoder cannot check drafts of tokens. Decoders say it of themselves, and `check` before one is built. */
import type { DeviceName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { SpeculativeConfig } from "../contract/speculative-config.ts";
import type { KvLayout } from "../models/built-model.ts";

export const draftObstacles = {
  exported: "the model is a ready-made ONNX export",
  recurrent: "recurrent states cannot be taken back",
  deviceSlots: (device: string): string => `KV slots on ${device} compute prompts elsewhere`,
  /** A draft would be computed with other weights than the tokens of an answer. */
  widened: 'prompts have 8-bit weights of their own; choose the prompt dtype "model"',
} as const;

export interface PlannedDecoder {
  readonly device: DeviceName;
  /** Null for a ready-made export. */
  readonly kvLayout: KvLayout | null;
  readonly hasRecurrentLayers: boolean;
  readonly widensPrompts: boolean;
}

/** The `Decoder.draftObstacle` that a decoder is going to have. */
export function draftObstacleOf(planned: PlannedDecoder): string | null {
  const { device, kvLayout, hasRecurrentLayers, widensPrompts } = planned;
  if (kvLayout === null) return draftObstacles.exported;
  if (hasRecurrentLayers) return draftObstacles.recurrent;
  if (kvLayout.kind === "slots" && device !== "cpu") return draftObstacles.deviceSlots(device);
  return widensPrompts ? draftObstacles.widened : null;
}

/**
 * A setting that cannot act is an error. A request's argument is a wish, since it changes no answer.
 *
 * @throws EngineError `invalid_configuration` if there is a setting and an obstacle.
 */
export function requireDrafts(config: SpeculativeConfig | null, obstacle: string | null): void {
  if (config === null || obstacle === null) return;
  throw new EngineError("invalid_configuration", `Drafts of tokens cannot be checked here: ${obstacle}.`, {
    setting: "speculativeConfig",
  });
}
