/** Loads a model's graphs, whichever form they have. */
import type { EngineConfig } from "../contract/config.ts";
import type { BuiltModel } from "../models/built-model.ts";
import { BuiltVisionEncoder } from "../vision/built-vision-encoder.ts";
import type { Decoder } from "../decoder/decoder.ts";
import { ExportedDecoder } from "../decoder/exported-decoder.ts";
import { ExportedVisionEncoder } from "../vision/exported-vision-encoder.ts";
import { InPlaceDecoder } from "../decoder/in-place-decoder.ts";
import type { KvSlots } from "../kv/kv-slots.ts";
import { decoderSessionOptions, visionEncoderSessionOptions } from "./session-options.ts";
import type { VisionEncoder } from "../vision/vision-encoder.ts";

/**
 * Throws EngineError `runtime_failed` if a graph does not load, `invalid_configuration` if the KV cache does not fit.
 */
export function loadDecoder(config: EngineConfig, model: BuiltModel, kvSlots: KvSlots): Decoder {
  const { decoder } = model;
  const options = decoderSessionOptions(config, model);
  return decoder.form === "export"
    ? new ExportedDecoder(decoder, options, kvSlots)
    : new InPlaceDecoder(decoder, options, kvSlots);
}

/** Null for a text model. Throws EngineError `runtime_failed` if the graph does not load. */
export function loadVisionEncoder(config: EngineConfig, model: BuiltModel): VisionEncoder | null {
  const { visionEncoder, decoder } = model;
  if (visionEncoder === null) return null;
  const options = visionEncoderSessionOptions(config, model);
  return visionEncoder.form === "export"
    ? new ExportedVisionEncoder(visionEncoder, decoder.hiddenSize, options)
    : new BuiltVisionEncoder(visionEncoder, decoder.hiddenSize, options);
}
