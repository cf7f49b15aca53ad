/** Shows experts that a checkpoint stores in one tensor for a whole layer under the names of single experts. */
import { invalidCheckpoint } from "./quantised/quantisation.ts";
import { bytesPerElement } from "./safetensors.ts";
import type { StoredTensor } from "./stored-tensor.ts";

type Tensors = ReadonlyMap<string, StoredTensor>;

const fusedSuffix = ".experts.gate_up_proj";

/**
 * For each pair of `{layer}.experts.gate_up_proj` [experts, 2 * width, hidden] and `{layer}.experts.down_proj` [experts,
 * hidden, width], or of both with their last two axes exchanged: the matrices `{layer}.experts.{index}.gate_proj.weight`,
 * `up_proj` and `down_proj`, at their places in the file, instead of the pair.
 *
 * @throws EngineError `invalid_checkpoint` if the shapes of a pair do not fit.
 */
export function withSeparateExperts(tensors: Tensors): Tensors {
  const fused = [...tensors.keys()].filter((name) => name.endsWith(fusedSuffix));
  if (fused.length === 0) return tensors;
  const shown = new Map(tensors);
  for (const name of fused) {
    const prefix = name.slice(0, -"gate_up_proj".length);
    const gateUp = tensors.get(name)!;
    const down = tensors.get(`${prefix}down_proj`);
    if (down === undefined) continue;
    shown.delete(name);
    shown.delete(down.name);
    for (const [part, matrices] of Object.entries(partsOf(gateUp, down))) {
      for (const [index, matrix] of matrices.entries()) {
        const own = `${prefix}${index}.${part}.weight`;
        shown.set(own, { ...matrix, name: own });
      }
    }
  }
  return shown;
}

function partsOf(gateUp: StoredTensor, down: StoredTensor): Record<string, readonly StoredTensor[]> {
  const [numExperts, rows, columns] = gateUp.shape;
  const [numDown, downRows, downColumns] = down.shape;
  const isPair = gateUp.shape.length === 3 && down.shape.length === 3 && numExperts === numDown;
  if (isPair && rows === 2 * downColumns! && columns === downRows) {
    const [width, hidden] = [downColumns!, downRows!];
    return {
      gate_proj: matricesOf(gateUp, [width, hidden], 0),
      up_proj: matricesOf(gateUp, [width, hidden], width * hidden),
      down_proj: matricesOf(down, [hidden, width], 0),
    };
  }
  if (isPair && columns === 2 * downRows! && rows === downColumns) {
    const [width, hidden] = [downRows!, downColumns!];
    return {
      gate_proj: matricesOf(gateUp, [width, hidden], 0, 2 * width),
      up_proj: matricesOf(gateUp, [width, hidden], width, 2 * width),
      down_proj: matricesOf(down, [hidden, width], 0, hidden),
    };
  }
  throw invalidCheckpoint(
    `Tensors ${gateUp.name} [${gateUp.shape.join(", ")}] and ${down.name} [${down.shape.join(", ")}] are not the ` +
      "matrices of the same experts.",
  );
}

/** One matrix of each expert, from element `start` of the expert on. */
function matricesOf(
  { shape: [numExperts], elementType, byteOffset, byteLength, file }: StoredTensor,
  shape: readonly [rows: number, columns: number],
  start: number,
  columnStride?: number,
): StoredTensor[] {
  const bytes = bytesPerElement[elementType];
  return Array.from({ length: numExperts! }, (_, index) => ({
    name: "",
    elementType,
    shape,
    file,
    byteOffset: byteOffset + index * (byteLength / numExperts!) + start * bytes,
    byteLength: shape[0] * shape[1] * bytes,
    ...(columnStride !== undefined && { columnStride }),
  }));
}
