/** The interface of an experiment, and its inputs. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import type { DtypeName } from "../../engine/contract/config.ts";
import type { GraphBuilder } from "../../engine/graph/graph-builder.ts";
import { Session } from "../../engine/runtime/session.ts";
import type { SessionOptions } from "../../engine/runtime/session.ts";
import type { Report } from "./report.ts";

/** The devices that experiments run on. On the CPU they are small, and show that they themselves are right. */
export type ExperimentDevice = "cpu" | "cuda";

export type HalfType = "float16" | "bfloat16";

export interface ExperimentContext {
  readonly device: ExperimentDevice;
  /** For graphs, checkpoints and caches. */
  readonly folder: string;
  readonly report: Report;
  /** Of the command line; null is what the experiment takes by itself. */
  readonly dtype: DtypeName | null;
}

export interface Experiment {
  /** How the command line names it. */
  readonly id: string;
  readonly title: string;
  readonly run: (context: ExperimentContext) => Promise<void>;
}

/** 16-bit numbers on a GPU, whose attention has no others; float32 on the CPU. */
export function elementTypesOf({ device }: ExperimentContext): readonly ("float32" | HalfType)[] {
  return device === "cuda" ? ["float16", "bfloat16"] : ["float32"];
}

export function loadGraph(
  { device, folder }: ExperimentContext,
  name: string,
  graph: GraphBuilder,
  options: Partial<SessionOptions> = {},
): Session {
  return loadModelBytes(device, join(folder, `${name}.onnx`), graph.encode(), options);
}

export function loadModelBytes(
  device: ExperimentDevice,
  path: string,
  model: Uint8Array,
  options: Partial<SessionOptions> = {},
): Session {
  writeFileSync(path, model);
  return Session.load(path, { device, deviceId: 0, numThreads: null, ...options });
}
