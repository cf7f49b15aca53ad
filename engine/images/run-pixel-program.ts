/** Imports and runs pixel programs, and checks what they return: those of users are code that no compiler has seen. */
import { EngineError } from "../contract/errors.ts";
import { describeError, shown } from "../excerpt.ts";
import type { CanonicalValue } from "../multimodal/hasher.ts";
import type { PixelProgram, PixelTools, RgbImage } from "../multimodal/pixel-program.ts";
import type { ItemTensor } from "../multimodal/processed-item.ts";
import { numElements } from "../runtime/element-type.ts";
import { valueOfByte } from "./pixel-values.ts";
import { resample } from "./resample.ts";

type Options = Readonly<Record<string, CanonicalValue>>;

/**
 * @param module URL of a module that exports a `PixelProgram` named `toTensors`.
 * @throws EngineError `invalid_configuration` for a module that does not load, `internal` for a program that fails or
 *   returns no tensors, and the program's own EngineErrors. The tensors' memory is the caller's.
 */
export async function runPixelProgram(
  module: string,
  image: RgbImage,
  options: Options,
): Promise<ReadonlyMap<string, ItemTensor>> {
  const program = await importProgram(module);
  let tensors: unknown;
  try {
    tensors = program(image, options, pixelTools);
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw failure(module, `failed: ${describeError(cause)}`, cause);
  }
  if (!(tensors instanceof Map)) throw failure(module, `returned ${shown(tensors)}; expected a Map of tensors`);
  for (const [name, tensor] of tensors) {
    const problem = problemOf(tensor);
    if (problem !== null) throw failure(module, `returned the tensor ${shown(name)} ${problem}`);
  }
  const checked = tensors as ReadonlyMap<string, ItemTensor>;
  return module.startsWith(engineFolder) ? checked : copied(checked);
}

/** Programs of users may return an array again that they keep, or one that they share. */
function copied(tensors: ReadonlyMap<string, ItemTensor>): ReadonlyMap<string, ItemTensor> {
  return new Map([...tensors].map(([name, tensor]) => [name, { ...tensor, data: tensor.data.slice() } as ItemTensor]));
}

/** The folder of Fovea's own modules. */
const engineFolder = new URL("../", import.meta.url).href;

/** Programs of users may lie anywhere, and import `fovea/pipelines` and `fovea/models`. */
async function importProgram(module: string): Promise<PixelProgram> {
  if (!module.startsWith(engineFolder)) {
    const { prepareProcessorModules } = await import("../sampling/custom/processor-modules.ts");
    prepareProcessorModules();
  }
  let exported: { readonly toTensors?: unknown };
  try {
    exported = (await import(module)) as typeof exported;
  } catch (cause) {
    throw invalid(module, `cannot be imported: ${describeError(cause)}`, cause);
  }
  if (typeof exported.toTensors === "function") return exported.toTensors as PixelProgram;
  throw invalid(module, "exports no function toTensors");
}

const pixelTools: PixelTools = {
  resample: (image, to) => resample(image, { ...to, window: null }),
  valuesOfBytes: (steps) => [0, 1, 2].map((channel) => valueOfByte(steps, channel)),
};

/** The element types of inputs of vision encoders. */
const arrays = { float32: Float32Array, int64: BigInt64Array } as const;

/** Null for a tensor. */
function problemOf(tensor: unknown): string | null {
  const { elementType, shape, data } = (tensor ?? {}) as Partial<Record<keyof ItemTensor, unknown>>;
  if (elementType !== "float32" && elementType !== "int64") {
    return `with the element type ${shown(elementType)}; expected float32 or int64`;
  }
  const isShape = Array.isArray(shape) && shape.every((size) => Number.isSafeInteger(size) && size >= 0);
  if (!isShape) return `with the shape ${shown(shape)}; expected a list of sizes`;
  const Expected = arrays[elementType];
  if (!(data instanceof Expected)) return `of ${elementType} without a ${Expected.name} as data`;
  const wanted = numElements(shape as number[]);
  return data.length === wanted
    ? null
    : `of the shape [${shape.join(", ")}] with ${data.length} elements, not ${wanted}`;
}

function invalid(module: string, problem: string, cause?: unknown): EngineError {
  return new EngineError("invalid_configuration", `The pixel program ${module} ${problem}.`, { cause });
}

function failure(module: string, problem: string, cause?: unknown): EngineError {
  return new EngineError("internal", `The pixel program ${module} ${problem}.`, { cause });
}
