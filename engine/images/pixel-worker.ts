/** Entry of the threads that decode and resample, so that this work never blocks the HTTP thread. */
import { move, transferableSymbol, valueSymbol } from "piscina";

import { EngineError, type EngineErrorCode } from "../contract/errors.ts";
import type { CanonicalValue } from "../multimodal/hasher.ts";
import type { ItemTensor } from "../multimodal/processed-item.ts";
import { decodeImage, readPictureHeader, type DecodedImage, type DecodeImageOptions } from "./decode-image.ts";
import type { PictureHeader } from "./picture-header.ts";
import { PixelFlags } from "./pixel-flags.ts";
import { toPixelValues, type PixelValues } from "./pixel-values.ts";
import type { PixelSize, PreprocessorPlan } from "./preprocessor-config.ts";
import { runPixelProgram } from "./run-pixel-program.ts";

export type PixelWork =
  | { readonly kind: "header" }
  | { readonly kind: "decode"; readonly header: PictureHeader }
  | { readonly kind: "plan"; readonly header: PictureHeader; readonly plan: PreprocessorPlan }
  /** `module`: URL of a module that exports a `PixelProgram` named `toTensors`. */
  | {
      readonly kind: "program";
      readonly header: PictureHeader;
      readonly module: string;
      readonly options: Readonly<Record<string, CanonicalValue>>;
    };

/** The tensors that a program made from a picture. */
export interface ProgramTensors {
  readonly tensors: ReadonlyMap<string, ItemTensor>;
  /** Size of the original picture. */
  readonly imageSize: PixelSize;
}

export interface PixelTask {
  /** The encoded picture, owned by the task. */
  readonly bytes: Uint8Array;
  readonly work: PixelWork;
  readonly limits: DecodeImageOptions;
  /** Of `PixelFlags`. */
  readonly flags: Int32Array<SharedArrayBuffer>;
}

/** Errors cross threads as data, because a cloned Error loses its class and code. */
export type PixelReply =
  | { readonly kind: "header"; readonly result: PictureHeader }
  | { readonly kind: "decoded"; readonly result: DecodedImage }
  | { readonly kind: "pixels"; readonly result: PixelValues }
  | { readonly kind: "tensors"; readonly result: ProgramTensors }
  /** `detail` is the decoder's message, for the log and never for the caller. */
  | {
      readonly kind: "refused";
      readonly code: EngineErrorCode;
      readonly message: string;
      readonly setting: EngineError["setting"];
      readonly detail: string | null;
    }
  | { readonly kind: "abandoned" };

export async function processPixels({ bytes, work, limits, flags: shared }: PixelTask): Promise<PixelReply> {
  const flags = new PixelFlags(shared);
  try {
    if (flags.isAbandoned) return { kind: "abandoned" };
    if (work.kind === "header") return { kind: "header", result: await readPictureHeader(bytes, limits) };
    const image = await decodeImage(bytes, limits, work.header);
    if (flags.isAbandoned) return { kind: "abandoned" };
    if (work.kind === "decode") {
      // The decoder's own memory does not move between threads.
      const data = new Uint8Array(image.data);
      return movingBuffers({ kind: "decoded", result: { ...image, data } }, [data.buffer]);
    }
    if (work.kind === "plan") {
      const result = toPixelValues(image, work.plan);
      freePicture(image);
      return movingBuffers({ kind: "pixels", result }, [result.pixelValues.buffer]);
    }
    flags.enterProgram();
    const tensors = await runPixelProgram(work.module, image, work.options);
    flags.leaveProgram();
    const imageSize = { width: image.width, height: image.height };
    const buffers = new Set([...tensors.values()].map(({ data }) => data.buffer));
    if (!buffers.has(image.data.buffer)) freePicture(image);
    return movingBuffers({ kind: "tensors", result: { tensors, imageSize } }, [...buffers]);
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const detail = error.cause instanceof Error ? error.cause.message : null;
    return { kind: "refused", code: error.code, message: error.message, setting: error.setting, detail };
  }
}

/** Freed at once: garbage collection would leave several pictures of tens of megabytes in memory first. */
function freePicture({ data }: DecodedImage): void {
  const isWhole = data.byteLength === data.buffer.byteLength;
  if (isWhole && data.buffer instanceof ArrayBuffer) data.buffer.transfer(0);
}

/** Marks the values' memory for transfer instead of a copy; the pool unwraps it. */
function movingBuffers(reply: PixelReply, buffers: readonly ArrayBufferLike[]): PixelReply {
  const marked = { [transferableSymbol]: buffers, [valueSymbol]: reply };
  return move(marked) as unknown as PixelReply;
}
