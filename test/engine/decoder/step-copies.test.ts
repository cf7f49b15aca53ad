/** Copies between host and device in the runs of a paged decoder, over memory that ONNX Runtime allocates on the CPU. */
import { expect, test } from "vitest";

import { noEmbeddings } from "../../../engine/decoder/decoder.ts";
import type { TokenSpan } from "../../../engine/decoder/decoder.ts";
import { PagedDecoder } from "../../../engine/decoder/paged-decoder.ts";
import { BlockKvManager } from "../../../engine/kv/block-kv-manager.ts";
import { blockCapacity } from "../../../engine/kv/plan-blocks.ts";
import { DeviceMemory } from "../../../engine/runtime/device-memory.ts";
import { elementTypeCode } from "../../../engine/runtime/element-type.ts";
import { Session } from "../../../engine/runtime/session.ts";
import type { Tensor } from "../../../engine/runtime/tensor.ts";
import { StepLogits } from "../../../engine/sampling/step-logits.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, goldenRequest } from "../core/golden-engine.ts";
import { inGraph } from "../kv/run-over-cache.ts";
import { writeIdentityModel } from "../runtime/small-models.ts";

/** Mutable: counts copies. ONNX Runtime has none within the CPU, so a session whose output is its input makes them. */
class CountedMemory extends DeviceMemory {
  numWrites = 0;
  numReads = 0;
  readonly #identity: Session;

  constructor(session: Session, identity: Session) {
    super(session.handle, "cpu", "Cpu", 0);
    this.#identity = identity;
  }

  override write(tensor: Tensor, source: Tensor): void {
    this.numWrites++;
    this.#copyBytes(source, tensor);
  }

  override readInto(tensor: Tensor, target: Tensor): void {
    this.numReads++;
    this.#copyBytes(tensor, target);
  }

  #copyBytes(source: Tensor, target: Tensor): void {
    using binding = this.#identity.createBinding();
    binding.bindInput("x", source);
    binding.bindOutput("y", target);
    binding.run();
  }
}

test("a step takes one copy of inputs to the device and one of candidates back", async () => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("llama", cache.path, "float32", { kind: "paged", blockSize: 16 });
  const graph = inGraph(model);
  const { externalDataFolder } = model;
  const session = Session.load(graph.path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder });
  const bytes = await writeIdentityModel(cache.path, elementTypeCode("uint8"));
  using identity = Session.load(bytes, { device: "cpu", deviceId: 0, numThreads: 1 });
  using memory = new CountedMemory(session, identity);
  Object.assign(session, { deviceMemory: memory });
  const capacity = blockCapacity(16, 64);
  const limits = { maxNumTokens: 256, maxNumSequences: 4, maxLen: 256, isEager: false };
  using decoder = new PagedDecoder(graph, session, capacity, limits, null);
  const kvManager = new BlockKvManager({ capacity, maxNumSequences: 4 });
  const sequences = cases
    .slice(0, 2)
    .map((golden, index) => new Sequence(goldenRequest(golden.name, golden, model), index));
  const logits = new StepLogits(4, graph.vocabSize);
  const spanOf = (sequence: Sequence, numTokens: number): TokenSpan => {
    const firstToken = sequence.numComputedTokens;
    kvManager.reserve(sequence, firstToken + numTokens);
    return { sequence, firstToken, endToken: firstToken + numTokens, numLogits: 1, embeddings: noEmbeddings };
  };
  /** Computes a step, and returns the most likely tokens and the number of copies that it took. */
  const compute = (spans: readonly TokenSpan[]): { tokenIds: number[]; copies: readonly [number, number] } => {
    logits.numRequests = spans.length;
    const before = [memory.numWrites, memory.numReads] as const;
    decoder.compute(spans, { rows: logits.rowsFrom(0, spans.length), step: { logits, firstRow: 0 } });
    const copies = [memory.numWrites - before[0], memory.numReads - before[1]] as const;
    return { tokenIds: spans.map((_, row) => logits.candidatesOf(row)!.tokenIds[0]!), copies };
  };
  const apply = (spans: readonly TokenSpan[], tokenIds: readonly number[]): void => {
    spans.forEach(({ sequence, endToken }, index) => {
      sequence.numComputedTokens = endToken;
      sequence.outputTokenIds.push(tokenIds[index]!);
    });
  };
  for (const sequence of sequences) kvManager.tryPlace(sequence)!.take();
  const prompts = sequences.map((sequence) => spanOf(sequence, sequence.numPromptTokens));
  const prefill = compute(prompts);
  expect(prefill.copies).toEqual([1, 1]);
  apply(prompts, prefill.tokenIds);
  for (let step = 0; step < 4; step++) {
    const decodes = sequences.map((sequence) => spanOf(sequence, 1));
    const { tokenIds, copies } = compute(decodes);
    expect(copies).toEqual([1, 1]);
    apply(decodes, tokenIds);
  }
  sequences.forEach(({ outputTokenIds }, index) => {
    expect(outputTokenIds).toEqual(cases[index]!.greedyTokenIds.slice(0, 5));
  });
});
