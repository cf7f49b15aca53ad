/** Entry of the threads that decode and resample, so that neither ever holds up the HTTP thread. */
import { move, transferableSymbol, valueSymbol } from "piscina";

import { EngineError, type EngineErrorCode } from "../contract/errors.ts";
import type { CanonicalValue } from "../multimodal/hasher.ts";
import type { PixelProgram, PixelTools } from "../multimodal/pixel-program.ts";
import type { ItemTensor } from "../multimodal/processed-item.ts";
import { decodeImage, readPictureHeader, type DecodedImage, type DecodeImageOptions } from "./decode-image.ts";
import type { PictureHeader } from "./picture-header.ts";
import { toPixelValues, valueOfByte, type PixelValues } from "./pixel-values.ts";
import type { PixelSize, PreprocessorPlan } from "./preprocessor-config.ts";
import { resample } from "./resample.ts";

export type PixelWork =
  | { readonly kind: "header" }
  | { readonly kind: "plan"; readonly header: PictureHeader; readonly plan: PreprocessorPlan }
  /** `module`: URL of a module that exports a `PixelProgram` called `toTensors`. */
  | {
      readonly kind: "program";
      readonly header: PictureHeader;
      readonly module: string;
      readonly options: Readonly<Record<string, CanonicalValue>>;
    };

/** What a program made of a picture. */
export interface ProgramTensors {
  readonly tensors: ReadonlyMap<string, ItemTensor>;
  /** Of the picture as it came. */
  readonly imageSize: PixelSize;
}

export interface PixelTask {
  /** Encoded picture, owned by the task. */
  readonly bytes: Uint8Array;
  readonly work: PixelWork;
  readonly limits: DecodeImageOptions;
  /** One shared number; not 0 once nobody waits for the result. */
  readonly abandoned: Int32Array;
}

/** Errors cross threads as data: a cloned Error loses its class and code. */
export type PixelReply =
  | { readonly kind: "header"; readonly result: PictureHeader }
  | { readonly kind: "pixels"; readonly result: PixelValues }
  | { readonly kind: "tensors"; readonly result: ProgramTensors }
  /** `detail` is what the decoder said; for the log, never for the caller. */
  | {
      readonly kind: "refused";
      readonly code: EngineErrorCode;
      readonly message: string;
      readonly setting: EngineError["setting"];
      readonly detail: string | null;
    }
  | { readonly kind: "abandoned" };

export async function processPixels({ bytes, work, limits, abandoned }: PixelTask): Promise<PixelReply> {
  try {
    if (Atomics.load(abandoned, 0) !== 0) return { kind: "abandoned" };
    if (work.kind === "header") return { kind: "header", result: await readPictureHeader(bytes, limits) };
    const image = await decodeImage(bytes, limits, work.header);
    if (Atomics.load(abandoned, 0) !== 0) return { kind: "abandoned" };
    if (work.kind === "plan") {
      const result = toPixelValues(image, work.plan);
      freePicture(image);
      return movingBuffers({ kind: "pixels", result }, [result.pixelValues.buffer]);
    }
    const { module, options } = work;
    const { toTensors } = (await import(module)) as { readonly toTensors: PixelProgram };
    const tensors = toTensors(image, options, pixelTools);
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

const pixelTools: PixelTools = {
  resample: (image, to) => resample(image, { ...to, window: null }),
  valuesOfBytes: (steps) => [0, 1, 2].map((channel) => valueOfByte(steps, channel)),
};

/** At once: collected as garbage, several pictures of tens of megabytes would stand side by side before they go. */
function freePicture({ data }: DecodedImage): void {
  const isWhole = data.byteLength === data.buffer.byteLength;
  if (isWhole && data.buffer instanceof ArrayBuffer) data.buffer.transfer(0);
}

/** Marks the values' memory to be handed over, not copied; the pool unwraps it. */
function movingBuffers(reply: PixelReply, buffers: readonly ArrayBufferLike[]): PixelReply {
  const marked = { [transferableSymbol]: buffers, [valueSymbol]: reply };
  return move(marked) as unknown as PixelReply;
}
