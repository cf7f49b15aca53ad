/** The golden llama's decoder on the CPU, with memory that ONNX Runtime allocates in place of a device's. */
import type { KvSession } from "../../../engine/kv/kv-cache.ts";
import type { DecoderGraph } from "../../../engine/models/built-model.ts";
import { DeviceMemory } from "../../../engine/runtime/device-memory.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel } from "../core/golden-engine.ts";
import { inGraph } from "./run-over-cache.ts";

export interface DecoderWithDeviceMemory extends AsyncDisposable {
  readonly graph: DecoderGraph;
  readonly session: Session;
  readonly memory: DeviceMemory;
  /** Allocates in `memory`. */
  readonly device: KvSession;
}

export async function loadDecoderWithDeviceMemory(): Promise<DecoderWithDeviceMemory> {
  await using owned = new AsyncDisposableStack();
  const folder = owned.use(await createTemporaryFolder());
  const { model } = await buildGoldenModel("llama", folder.path);
  const graph = inGraph(model);
  const { externalDataFolder } = model;
  const session = owned.use(
    Session.load(graph.path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder }),
  );
  const memory = owned.use(new DeviceMemory(session.handle, "cpu", "Cpu", 0));
  const moved = owned.move();
  return {
    graph,
    session,
    memory,
    device: { deviceMemory: memory, allocateTensor: (elementType, shape) => memory.allocate(elementType, shape) },
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}
