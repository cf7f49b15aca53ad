/**
 * Recurrent layers of a packed run on CUDA: one operator for the tokens of all sequences. The states of each sequence
 * are gathered from the row that `state_rows` names and written to the row in `new_state_rows`, on the device. A run reads
 * no row that it writes, so that the same run may be computed several times, which a captured graph does.
 */
import { packedCausalConvolution, packedGatedDeltaRule } from "../../graph/recurrent-ops.ts";
import { scatterAlongFirstAxis } from "../../graph/selection-ops.ts";
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, cast, gatherRows } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { DecoderInputs } from "./decoder-inputs.ts";
import { batch, stateRows, tokens } from "./sizes.ts";

/** The inputs of the graph are added for the first recurrent layer. */
export function createCudaPagedRecurrence(
  context: GraphContext,
  { cumulativeLengths }: { /** int32 [B + 1]. */ readonly cumulativeLengths: Value },
): Pick<DecoderInputs, "convolve" | "recur"> {
  const { graph, precision } = context;
  let made: StateIndex | null = null;
  const index = (): StateIndex => (made ??= createStateIndex(context));
  const asHeads = (name: string, rows: Value, numHeads: number, headDim: number): Value =>
    reshapeTo(graph, name, rows, [tokens, numHeads, headDim]);
  return {
    convolve({ name, layer, input, kernel, bias, activation }) {
      const [channels, , kernelSize] = kernel.shape.map(Number) as [number, number, number];
      const row = [channels, kernelSize - 1];
      const pool = graph.input(`past.${layer}.convolution`, precision.activations, [stateRows, ...row]);
      const past = index().gather(`${name}.kept`, pool);
      const { output, present } = packedCausalConvolution(graph, name, {
        input,
        kernel,
        bias,
        cumulativeLengths,
        past,
        activation,
      });
      graph.output(index().scatter(`present.${layer}.convolution`, pool, present));
      return output;
    },
    recur({ name, layer, query, key, value, decay, beta, numKeyHeads, numValueHeads, keyDim, valueDim }) {
      const pool = graph.input(`past.${layer}.state`, "float32", [stateRows, numValueHeads, valueDim, keyDim]);
      const { output, present } = packedGatedDeltaRule(graph, name, {
        query: asHeads(`${name}.query.heads`, query, numKeyHeads, keyDim),
        key: asHeads(`${name}.key.heads`, key, numKeyHeads, keyDim),
        value: asHeads(`${name}.value.heads`, value, numValueHeads, valueDim),
        decay,
        beta,
        cumulativeLengths,
        past: index().gather(`${name}.kept`, pool),
        presentName: `${name}.new`,
      });
      graph.output(index().scatter(`present.${layer}.state`, pool, present));
      return reshapeTo(graph, `${name}.flat`, output, [tokens, numValueHeads * valueDim]);
    },
  };
}

/** Rows of the states, shared by all layers. */
interface StateIndex {
  /** The rows before the run, [B, ...row] of a pool [numRows, ...row]. */
  gather(name: string, pool: Value): Value;
  /** The pool with the rows after the run. Its memory is that of the pool, of which no other row changes. */
  scatter(name: string, pool: Value, updates: Value): Value;
}

function createStateIndex({ graph }: GraphContext): StateIndex {
  const rows = graph.input("state_rows", "int64", [batch]);
  const newRows = cast(graph, "new_state_rows.narrow", graph.input("new_state_rows", "int64", [batch]), "int32");
  const known = new Map<string, Value>();
  /** The row of each number of the updates, which the kernel then writes in parallel. `ScatterND` writes a row in one thread. */
  const spread = (row: readonly number[]): Value => {
    const name = `new_state_rows.${row.join(".")}`;
    const made = known.get(name);
    if (made !== undefined) return made;
    const rank = row.length + 1;
    const last = row.at(-1)!;
    const ones = Array.from({ length: rank - 1 }, () => 1);
    const column = reshapeTo(graph, `${name}.column`, newRows, [batch, ...ones]);
    const zeros = (part: string, shape: readonly number[]): Value => {
      const length = shape.reduce((product, size) => product * size, 1);
      return graph.constant(
        `${name}.${part}`,
        "int32",
        shape,
        Array.from({ length }, () => 0),
      );
    };
    // Added in two parts: a constant of all numbers of a row would be as large as a state.
    const outer = add(graph, `${name}.outer`, column, zeros("zeros.outer", [1, ...row.slice(0, -1), 1]));
    const spreadRows = add(graph, name, outer, zeros("zeros.last", [...ones, last]));
    known.set(name, spreadRows);
    return spreadRows;
  };
  return {
    gather: (name, pool) => gatherRows(graph, name, pool, rows),
    scatter: (name, data, updates) =>
      scatterAlongFirstAxis(graph, name, { data, indices: spread(updates.shape.slice(1).map(Number)), updates }),
  };
}
