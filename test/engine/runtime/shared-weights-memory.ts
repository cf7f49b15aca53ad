/**
 * Run by shared-weights.test.ts in a separate process: loads a model three times with weights of each session, and three
 * times with shared ones, and prints by how many bytes private memory grew each time, as JSON.
 */
import { readFileSync } from "node:fs";

import { releaseFreedMemory } from "../../../engine/runtime/release-memory.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { WeightSharing } from "../../../engine/runtime/shared-weights.ts";
import type { ProductModel } from "./small-models.ts";

const { path, externalDataFolder, weights } = JSON.parse(process.argv[2]!) as ProductModel;
const options = { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder } as const;
using sharing = WeightSharing.create()!;
const sharedWeights = sharing.share(weights);
const sessions = new DisposableStack();
// What all sessions have in common.
Session.load(path, options)[Symbol.dispose]();

const own = Array.from({ length: 3 }, () => growthBy(() => Session.load(path, options)));
const shared = Array.from({ length: 3 }, () => growthBy(() => Session.load(path, { ...options, sharedWeights })));
process.stdout.write(JSON.stringify({ own, shared }));
sessions.dispose();

function growthBy(load: () => Session): number {
  releaseFreedMemory();
  const before = privateBytes();
  sessions.use(load());
  releaseFreedMemory();
  return privateBytes() - before;
}

function privateBytes(): number {
  const status = readFileSync("/proc/self/status", "latin1");
  return Number(/^RssAnon:\s+(\d+) kB$/m.exec(status)![1]) * 1024;
}
