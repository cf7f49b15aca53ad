/** A check of the device's attention before anything is computed with it. */
import { EngineError } from "../contract/errors.ts";
import { groupQueryAttention } from "../graph/contrib-ops.ts";
import { GraphBuilder } from "../graph/graph-builder.ts";
import type { ProviderOptions } from "../runtime/execution-provider.ts";
import { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";

/** From so many tokens in a run on, ONNX Runtime 1.30 computes attention on WebGPU with a kernel for prompts. */
const PROMPT_KERNEL_TOKENS = 32;

/** Wrong shares of the softmax are off by 0.01 and more, right ones by rounding. */
const TOLERANCE = 1e-3;

/**
 * On WebGPU, ONNX Runtime's kernel for prompts needs subgroups of at least 8 lanes. On an adapter with fewer, such as
 * SwiftShader, it computes wrong numbers without an error.
 *
 * @param maxNumTokens Most tokens of a prompt in one run.
 * @throws EngineError `invalid_configuration` if runs would be so long that their numbers are wrong.
 */
export function requireSoundPrompts(options: ProviderOptions, maxNumTokens: number): void {
  if (maxNumTokens < PROMPT_KERNEL_TOKENS || computesPrompts(options)) return;
  throw new EngineError(
    "invalid_configuration",
    `The WebGPU adapter computes wrong attention for ${PROMPT_KERNEL_TOKENS} or more tokens of a prompt in one run, as ` +
      "software adapters do whose subgroups have fewer than 8 lanes. Compute at most " +
      `${PROMPT_KERNEL_TOKENS - 1} tokens in a step (${maxNumTokens} are set), or use another adapter.`,
    { setting: "maxNumBatchedTokens" },
  );
}

/** Equal keys share equally: with one value for each position, token `t` gets `1 / (t + 1)` of each of the first `t`. */
function computesPrompts(options: ProviderOptions): boolean {
  const numTokens = PROMPT_KERNEL_TOKENS;
  using session = Session.fromBytes(buildAttention(), { ...options, device: "webgpu", numThreads: 1 });
  using binding = session.createBinding();
  using tensors = new DisposableStack();
  const shape = [1, numTokens, numTokens];
  const host = (data: Float32Array): Tensor => tensors.use(Tensor.fromTypedArray("float32", data, shape));
  const values = Float32Array.from({ length: numTokens ** 2 }, (_, index) => (index % (numTokens + 1) === 0 ? 1 : 0));
  const output = new Float32Array(values.length);
  binding.bindInput("query", host(new Float32Array(values.length)));
  binding.bindInput("key", host(new Float32Array(values.length)));
  binding.bindInput("value", host(values));
  const length = (total: number, dimensions: readonly number[]): Tensor =>
    tensors.use(Tensor.fromTypedArray("int32", Int32Array.of(total), dimensions));
  binding.bindInput("seqlens_k", length(numTokens - 1, [1]));
  binding.bindInput("total_sequence_length", length(numTokens, []));
  for (const part of ["key", "value"]) {
    const cache = session.allocateTensor("float32", [1, 1, numTokens, numTokens]);
    binding.bindInput(`past.${part}`, cache);
    binding.bindOutput(`present.${part}`, cache);
  }
  binding.bindOutput("attention", host(output));
  binding.run();
  return output.every((share, index) => {
    const token = Math.floor(index / numTokens);
    const expected = index % numTokens <= token ? 1 / (token + 1) : 0;
    return Math.abs(share - expected) < TOLERANCE;
  });
}

/** One head, as long as there are tokens. */
function buildAttention(): Uint8Array {
  const graph = new GraphBuilder("prompt_attention");
  const headDim = PROMPT_KERNEL_TOKENS;
  const tokens = (name: string) => graph.input(name, "float32", [1, "length", headDim]);
  const past = (part: string) => graph.input(`past.${part}`, "float32", [1, 1, "max_length", headDim]);
  const { output, presentKey, presentValue } = groupQueryAttention(graph, "attention", {
    query: tokens("query"),
    key: tokens("key"),
    value: tokens("value"),
    pastKey: past("key"),
    pastValue: past("value"),
    seqlensK: graph.input("seqlens_k", "int32", [1]),
    totalSequenceLength: graph.input("total_sequence_length", "int32", []),
    rotary: null,
    numHeads: 1,
    numKvHeads: 1,
    headDim,
    localWindowSize: null,
    scale: null,
    headSink: null,
    presentKeyName: "present.key",
    presentValueName: "present.value",
  });
  for (const value of [output, presentKey, presentValue]) graph.output(value);
  return graph.encode();
}
