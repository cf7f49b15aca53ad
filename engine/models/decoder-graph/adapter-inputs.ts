/** The inputs that say which adapter computes each token. */
import { gatherRows } from "../../graph/standard-ops.ts";
import { logitRows, type GraphContext } from "../graph-context.ts";
import { columnsOf } from "../low-rank.ts";
import { tokens } from "./sizes.ts";

/** Adds them if requests can choose adapters: for the tokens of the run, and for those whose logits are requested. */
export function createAdapterInputs(context: GraphContext): void {
  const { graph, adapterTokens } = context;
  if (adapterTokens === null) return;
  const ids = graph.input("adapter_ids", "int64", [tokens]);
  adapterTokens.ids.set(tokens, ids);
  const rows = graph.input("logit_rows", "int64", [logitRows]);
  adapterTokens.ids.set(logitRows, gatherRows(graph, "adapter_ids.of_logits", ids, rows));
  if (takesAdapterColumns(context)) adapterTokens.columns = graph.input("adapter_columns", "int64", [columnsOf(1)]);
}

/** Captured graphs have fixed sizes, and kernels of other devices may not accept matrices without columns. */
export function takesAdapterColumns({ device, kvLayout }: Pick<GraphContext, "device" | "kvLayout">): boolean {
  return device === "cpu" && kvLayout.kind === "slots";
}
