/** Parts of a graph of which a run computes one. */
import { standardDomain, type GraphBuilder, type ValuePerElement } from "./graph-builder.ts";
import { checkElementType, checkShape, nodeError } from "./node-checks.ts";
import { describeValue, sameShape, type Value } from "./value.ts";

export interface Alternatives {
  readonly names: readonly string[];
  /** bool []. */
  readonly condition: Value;
  /** Computes the values where the condition is true. */
  readonly chosen: () => readonly Value[];
  /** Computes values of the same types and shapes where it is false. */
  readonly other: () => readonly Value[];
}

/**
 * The values of one of two branches, under `names`. A branch that is not computed costs nothing; the node itself takes
 * one to two microseconds. An output that is bound to memory of the caller's is written there by the branch itself, so a
 * node that works in place may be in a branch.
 */
export function choose<const Names extends readonly string[]>(
  graph: GraphBuilder,
  name: string,
  { names, condition, chosen, other }: Alternatives & { readonly names: Names },
): ValuePerElement<Names> {
  const node = { name, operator: "If" };
  checkElementType(node, condition, "bool");
  checkShape(node, condition, []);
  const thenBranch = graph.branch(`${name}.then`, chosen);
  const elseBranch = graph.branch(`${name}.else`, other);
  const outputs = names.map((output, index) => {
    const [left, right] = [thenBranch.outputs[index], elseBranch.outputs[index]];
    if (left === undefined || right === undefined) throw nodeError(node, `a branch lacks the output ${output}.`);
    if (left.elementType !== right.elementType || !sameShape(left.shape, right.shape)) {
      throw nodeError(node, `the branches compute ${describeValue(left)} and ${describeValue(right)}.`);
    }
    return { name: output, elementType: left.elementType, shape: left.shape };
  });
  return graph.addNode({
    ...node,
    domain: standardDomain,
    inputs: [condition],
    attributes: {
      then_branch: { kind: "graph", value: thenBranch },
      else_branch: { kind: "graph", value: elseBranch },
    },
    outputs,
  }) as ValuePerElement<Names>;
}
