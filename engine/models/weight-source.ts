/**
 * The source of weights for a graph under construction. The same code builds graphs twice: first to collect the
 * requested weights and formats, then, once those are prepared, to build the real graph.
 */
import { EngineError, invariant } from "../contract/errors.ts";
import type { NamedAdapter } from "../weights/adapters/named-adapter.ts";
import { imagineMatrices, type AdapterMatrices, type AdapterRequest } from "../weights/adapters/prepare-adapters.ts";
import type { PreparedWeight, WeightRequest } from "../weights/prepared-weights.ts";
import { bytesPerElement } from "../weights/safetensors.ts";
import {
  isStoredInBlocks,
  type ElementType,
  type QuantisedMatrix,
  type StoredTensor,
} from "../weights/stored-tensor.ts";
import { preparedLayout } from "../weights/weight-plan.ts";

export interface WeightSource {
  /** The weight in the requested form. A name is requested in the same form everywhere. */
  prepared(request: WeightRequest): PreparedTensors;
  /**
   * A tensor of floats as stored in the checkpoint; null if kernels cannot read its bytes in place.
   *
   * @throws EngineError `invalid_checkpoint` if its shape differs.
   */
  stored(name: string, shape: readonly number[]): StoredTensor | null;
  /** Whether the checkpoint has the tensor. */
  has(name: string): boolean;
  /** How the checkpoint quantises the matrix; null if it does not. */
  quantised(name: string): QuantisedMatrix | null;
  /** Bits of the narrowest integers that the checkpoint stores in groups, beside float activations; 4 if there are none. */
  fewestStoredBits(): 4 | 8;
  /** Adapters of which each request may choose one. Left out: none. */
  readonly adapters?: AdapterSource;
}

export interface AdapterSource {
  /** Columns of each adapter in `AdapterMatrices`. */
  readonly ranks: readonly number[];
  /** Null if no adapter changes any of the layers. */
  matrices(this: void, request: AdapterRequest): AdapterMatrices | null;
}

export type PreparedTensors = Pick<PreparedWeight, "weight" | "scales" | "zeroPoints">;

/** The first prefix under which the checkpoint has the tensor; if none, the first of all, for the error. */
export function findPrefix(weights: WeightSource, prefixes: readonly string[], tensor: string): string {
  return prefixes.find((prefix) => weights.has(`${prefix}${tensor}`)) ?? prefixes[0]!;
}

/** Collects requests, and answers with tensors of the right types and shapes that are stored nowhere. */
export class WeightCollector implements WeightSource {
  readonly requests = new Map<string, WeightRequest>();
  /** Tensors that are used as stored in the checkpoint. */
  readonly storedTensors = new Set<StoredTensor>();
  readonly adapterRequests = new Map<string, AdapterRequest>();
  readonly adapters?: AdapterSource;
  readonly #tensors: ReadonlyMap<string, StoredTensor>;

  /** @param adapters Of which each request may choose one. */
  constructor(tensors: ReadonlyMap<string, StoredTensor>, adapters: readonly NamedAdapter[] = []) {
    this.#tensors = tensors;
    if (adapters.length === 0) return;
    this.adapters = {
      ranks: ranksOf(adapters),
      matrices: (request) => {
        const imagined = imagineMatrices(adapters, request);
        if (imagined !== null) this.adapterRequests.set(request.name, request);
        return imagined;
      },
    };
  }

  prepared(request: WeightRequest): PreparedTensors {
    for (const source of request.sources) requireTensor(this.#tensors, source);
    this.requests.set(request.name, request);
    return imaginedWeights.prepared(request);
  }

  stored(name: string, shape: readonly number[]): StoredTensor | null {
    const tensor = storedTensor(this.#tensors, name, shape);
    if (tensor !== null) this.storedTensors.add(tensor);
    return tensor;
  }

  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  quantised(name: string): QuantisedMatrix | null {
    return this.#tensors.get(name)?.quantised ?? null;
  }

  fewestStoredBits(): 4 | 8 {
    return fewestBits(this.#tensors);
  }
}

/** The checkpoint's matrices that the layers of the collected requests have. */
export function changedTensors({ adapterRequests }: Pick<WeightCollector, "adapterRequests">): ReadonlySet<string> {
  return new Set([...adapterRequests.values()].flatMap(({ layers }) => layers.map(({ name }) => `${name}.weight`)));
}

/** Has every tensor in the requested shape; none of them is stored anywhere. */
export const imaginedWeights: WeightSource = {
  prepared(request) {
    const { weight, scales, zeroPoints } = preparedLayout(request);
    return {
      weight: placeholder(request.name, weight.elementType, weight.shape),
      scales: scales && placeholder(`${request.name}.scales`, "float32", scales),
      zeroPoints: zeroPoints && placeholder(`${request.name}.zero_points`, "uint8", zeroPoints),
    };
  },
  stored: (name, shape) => placeholder(name, "float32", shape),
  has: () => true,
  quantised: () => null,
  fewestStoredBits: () => 4,
};

export interface PreparedAdapters {
  readonly adapters: readonly NamedAdapter[];
  /** By the names of the requests. */
  readonly matrices: ReadonlyMap<string, AdapterMatrices>;
}

/** @param chosen Adapters of which each request may choose one; null without any. */
export function createPreparedSource(
  prepared: ReadonlyMap<string, PreparedWeight>,
  tensors: ReadonlyMap<string, StoredTensor>,
  chosen: PreparedAdapters | null = null,
): WeightSource {
  return {
    ...(chosen !== null && {
      adapters: {
        ranks: ranksOf(chosen.adapters),
        matrices: ({ name }) => chosen.matrices.get(name) ?? null,
      },
    }),
    prepared(request) {
      const weight = prepared.get(request.name);
      invariant(weight !== undefined, `the weight ${request.name} was not requested the first time`);
      return weight;
    },
    stored: (name, shape) => storedTensor(tensors, name, shape),
    has: (name) => tensors.has(name),
    quantised: (name) => tensors.get(name)?.quantised ?? null,
    fewestStoredBits: () => fewestBits(tensors),
  };
}

function ranksOf(adapters: readonly NamedAdapter[]): readonly number[] {
  return adapters.map(({ rank }) => rank);
}

function fewestBits(tensors: ReadonlyMap<string, StoredTensor>): 4 | 8 {
  let hasEight = false;
  for (const { quantised } of tensors.values()) {
    if (!isStoredInBlocks(quantised)) continue;
    if (quantised.bits === 4) return 4;
    hasEight = true;
  }
  return hasEight ? 8 : 4;
}

function placeholder(name: string, elementType: ElementType, shape: readonly number[]): StoredTensor {
  return { name, elementType, shape, file: "/", byteOffset: 0, byteLength: 0 };
}

function storedTensor(
  tensors: ReadonlyMap<string, StoredTensor>,
  name: string,
  shape: readonly number[],
): StoredTensor | null {
  const tensor = requireTensor(tensors, name);
  if (tensor.shape.length !== shape.length || tensor.shape.some((size, axis) => size !== shape[axis])) {
    throw new EngineError(
      "invalid_checkpoint",
      `Tensor ${name} has shape [${tensor.shape.join(", ")}]; config.json implies [${shape.join(", ")}].`,
    );
  }
  const isAsStored = tensor.columnStride === undefined && tensor.update === undefined;
  return isAsStored &&
    storedFloats.has(tensor.elementType) &&
    tensor.byteOffset % bytesPerElement[tensor.elementType] === 0
    ? tensor
    : null;
}

const storedFloats: ReadonlySet<ElementType> = new Set(["float32", "float16", "bfloat16"]);

function requireTensor(tensors: ReadonlyMap<string, StoredTensor>, name: string): StoredTensor {
  const tensor = tensors.get(name);
  if (tensor === undefined)
    throw new EngineError("invalid_checkpoint", `The checkpoint has no tensor ${name}, which config.json requires.`);
  return tensor;
}
