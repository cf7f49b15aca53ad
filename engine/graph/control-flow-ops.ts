/** Parts of a graph of which a run computes one. */
import { standardDomain, type GraphBuilder, type ValuePerElement } from "./graph-builder.ts";
import { checkElementType, checkShape, nodeError } from "./node-checks.ts";
import { describeValue, sameShape, type Value } from "./value.ts";

/** Two ways to compute the same values, in the same order, of the same types and shapes. */
export interface Alternatives {
  /** bool []. */
  readonly condition: Value;
  /** Computes the values where the condition is true. */
  readonly chosen: () => readonly Value[];
  /** Computes them where it is false. */
  readonly other: () => readonly Value[];
}

/**
 * The values of one of two branches, under `names`. A branch that is not computed costs nothing; the node itself takes
 * some microseconds. An output that is bound to memory of the caller's is written there by the branch itself, so a node
 * that works in place may be in a branch.
 */
export function choose<const Names extends readonly string[]>(
  graph: GraphBuilder,
  name: string,
  { names, ...alternatives }: Alternatives & { readonly names: Names },
): ValuePerElement<Names> {
  return addChoice(graph, name, names, alternatives) as ValuePerElement<Names>;
}

/** Two graphs with the same outputs, which become those of the whole graph. Both name them with `GraphBuilder.output`. */
export function chooseGraph(
  graph: GraphBuilder,
  name: string,
  {
    condition,
    chosen,
    other,
  }: { readonly [Part in keyof Alternatives]: Part extends "condition" ? Value : () => void },
): void {
  const naming = (build: () => void) => (): readonly Value[] => {
    build();
    return [];
  };
  const alternatives = { condition, chosen: naming(chosen), other: naming(other) };
  for (const output of addChoice(graph, name, null, alternatives)) graph.output(output);
}

/** @param names Null for the names that the outputs have in the branches. */
function addChoice(
  graph: GraphBuilder,
  name: string,
  names: readonly string[] | null,
  { condition, chosen, other }: Alternatives,
): readonly Value[] {
  const node = { name, operator: "If" };
  checkElementType(node, condition, "bool");
  checkShape(node, condition, []);
  const thenBranch = graph.branch(`${name}.then`, chosen);
  const elseBranch = graph.branch(`${name}.else`, other);
  const outputNames = names ?? thenBranch.outputs.map((output) => output.name);
  const outputs = outputNames.map((output, index) => {
    const [left, right] = [thenBranch.outputs[index], elseBranch.outputs[index]];
    if (left === undefined || right === undefined) throw nodeError(node, `a branch lacks the output ${output}.`);
    const isSame = left.elementType === right.elementType && sameShape(left.shape, right.shape);
    if (!isSame || (names === null && left.name !== right.name)) {
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
  });
}
