/** Converts the tensors of a checkpoint into the weights that a model requests, once per content, in a mapped file. */
import { hash } from "node:crypto";
import { open } from "node:fs/promises";
import { dirname, resolve } from "node:path";

import { EngineError } from "../contract/errors.ts";
import { moduleUrl } from "../module-url.ts";
import { writeAtomically } from "./atomic-file.ts";
import type { Checkpoint } from "./checkpoint.ts";
import { convertRows, type ConversionFault, type ConversionTask } from "./conversion-worker.ts";
import { requireDiskRoom } from "./disk-room.ts";
import type { PreparedWeight, WeightRequest } from "./prepared-weights.ts";
import type { WeightProgress } from "./progress.ts";
import { ROW_ALIGNMENT } from "./quantised/grouped-rows.ts";
import type { StoredTensor } from "./stored-tensor.ts";
import { countElements, planWeights, type PlannedTensor, type PlannedWeight, type WeightPlan } from "./weight-plan.ts";

/** Increase it when the same request produces other bytes, so that older files are not reused. */
const FORMAT_VERSION = 1;

/** The file starts with a page that describes it. Tensors follow. */
const HEADER_BYTES = 4096;

/**
 * A task's rows as float32 fit into a core's share of the last-level cache, and there are enough tasks for all threads.
 */
const ELEMENTS_PER_TASK = 1024 * 1024;

/** Minimum strip width of the transposed form: shorter strips cost more in calls than in bytes. */
const MIN_ROWS_PER_TRANSPOSED_TASK = 256;

/**
 * Minimum number of rows of a quantised source: in some formats they are columns of the file, and narrow strips of
 * them cost more in calls than in bytes.
 */
const MIN_ROWS_PER_QUANTISED_TASK = 1024;

/** With less to read, starting threads would take longer than the work. */
const INLINE_BYTES = 4 * 1024 * 1024;

export interface PrepareWeightsOptions {
  readonly cacheFolder: string;
  readonly numThreads: number;
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

type MadeWeight = Extract<PlannedWeight, { kind: "made" }>;

/**
 * Returns weights by the names of the requests. Plain weights already stored in the wanted type stay in the checkpoint.
 * All others are written, at multiples of 64 bytes, into one file below `cacheFolder` that is named by content and
 * requests. Two processes may do this at once: each writes its own file, and the last one to finish replaces an equal
 * file.
 *
 * @throws EngineError `invalid_checkpoint` (a tensor is missing, has another shape, or has values that the format
 * cannot represent), `invalid_configuration` (the cache folder is not writable), `aborted`.
 */
export async function prepareWeights(
  checkpoint: Checkpoint,
  requests: readonly WeightRequest[],
  options: PrepareWeightsOptions,
): Promise<ReadonlyMap<string, PreparedWeight>> {
  const plan = planWeights(checkpoint.tensors, requests, HEADER_BYTES);
  const made = plan.weights.filter((weight) => weight.kind === "made");
  const file = made.length === 0 ? "" : await findOrMakeFile(checkpoint, plan, made, options);

  const stored = (name: string, tensor: PlannedTensor): StoredTensor => ({ name, file, ...tensor });
  return new Map(
    plan.weights.map((planned): [string, PreparedWeight] => {
      const { request } = planned;
      if (planned.kind === "in-place") {
        return [request.name, { request, weight: planned.source, scales: null, zeroPoints: null }];
      }
      const scales = planned.scales && stored(`${request.name}.scales`, planned.scales);
      const zeroPoints = planned.zeroPoints && stored(`${request.name}.zero_points`, planned.zeroPoints);
      return [request.name, { request, weight: stored(request.name, planned.weight), scales, zeroPoints }];
    }),
  );
}

async function findOrMakeFile(
  checkpoint: Checkpoint,
  { fileBytes }: WeightPlan,
  made: readonly MadeWeight[],
  options: PrepareWeightsOptions,
): Promise<string> {
  const contentHash = await checkpoint.contentHash({ signal: options.signal });
  const key = hash("sha256", JSON.stringify([FORMAT_VERSION, contentHash, made.map((weight) => weight.request)]));
  const header = Buffer.alloc(HEADER_BYTES);
  header.write(JSON.stringify({ format: "fovea-weights", formatVersion: FORMAT_VERSION, key, fileBytes }));
  const file = resolve(options.cacheFolder, "weights", `${key}.bin`);
  if (await isWhole(file, header, fileBytes)) return file;

  await writeAtomically(file, `${fileBytes} bytes of prepared weights`, async (targetFile) => {
    await requireDiskRoom(dirname(targetFile), fileBytes, {
      contents: "The prepared weights need",
      place: "the cache folder",
      setting: "cacheFolder",
    });
    const target = await open(targetFile, "r+");
    try {
      await target.truncate(fileBytes);
      await convertAll(createTasks(made, targetFile), options);
      await target.write(header, 0, header.byteLength, 0);
    } finally {
      await target.close();
    }
  });
  return file;
}

/** False for a file that is absent, truncated or of another version. */
async function isWhole(file: string, header: Buffer, fileBytes: number): Promise<boolean> {
  const handle = await open(file, "r").catch(() => null);
  if (handle === null) return false;
  try {
    const { size } = await handle.stat();
    const found = Buffer.alloc(header.byteLength);
    await handle.read(found, 0, found.byteLength, 0);
    return size === fileBytes && found.equals(header);
  } finally {
    await handle.close();
  }
}

function createTasks(made: readonly MadeWeight[], targetFile: string): readonly ConversionTask[] {
  return made.flatMap(({ request, sources, rowOrder, weight, scales, zeroPoints }) => {
    const { format, shape } = request;
    const isQuantised = sources.some((source) => source.quantised !== undefined);
    const alternates = request.alternatesPairs === true;
    const isInOrder = !isQuantised && !alternates && sources.every(isConvertedByElement);
    // A plain weight of any rank is treated as a column of elements, because its conversion does not depend on rows.
    const columns = format.kind === "plain" && isInOrder ? 1 : (shape[1] ?? 1);
    if (countElements(shape) === 0) return [];
    const totalRows = countElements(shape) / columns;
    const minRows = isQuantised
      ? MIN_ROWS_PER_QUANTISED_TASK
      : format.kind === "per-channel-int8"
        ? MIN_ROWS_PER_TRANSPOSED_TASK
        : 1;
    const alignment = isQuantised ? ROW_ALIGNMENT : 1;
    const rowsPerTask = Math.ceil(Math.max(minRows, Math.floor(ELEMENTS_PER_TASK / columns)) / alignment) * alignment;

    const positions = rowOrder && positionsOf(rowOrder);

    const tasks: ConversionTask[] = [];
    let sourceRow = 0;
    for (const [index, source] of sources.entries()) {
      const sourceRows = countElements(source.shape) / columns;
      for (let firstRow = 0; firstRow < sourceRows; firstRow += rowsPerTask) {
        const numRows = Math.min(rowsPerTask, sourceRows - firstRow);
        tasks.push({
          source,
          firstRow,
          numRows,
          columns,
          format,
          targetFile,
          weightOffset: weight.byteOffset,
          scalesOffset: scales?.byteOffset ?? 0,
          zeroPointsOffset: zeroPoints?.byteOffset ?? null,
          targetRow: sourceRow + firstRow,
          targetRows: alternates
            ? alternateRows(sourceRow - (index % 2) * sourceRows + (index % 2), firstRow, numRows)
            : positions && targetRowsOf(positions, sourceRow + firstRow, numRows),
          totalRows,
        });
      }
      sourceRow += sourceRows;
    }
    return tasks;
  });
}

function isConvertedByElement({ columnStride, update }: StoredTensor): boolean {
  return columnStride === undefined && update === undefined;
}

function positionsOf(order: Int32Array): Int32Array {
  const positions = new Int32Array(order.length);
  for (let position = 0; position < order.length; position++) positions[order[position]!] = position;
  return positions;
}

/** Of successive rows from `firstRow` on: the rows that they become, each within its run of rows. */
function targetRowsOf(positions: Int32Array, firstRow: number, numRows: number): Int32Array {
  return Int32Array.from({ length: numRows }, (_, index) => {
    const row = firstRow + index;
    const inRun = row % positions.length;
    return row - inRun + positions[inRun]!;
  });
}

/** Rows of one matrix of a pair whose rows are stored by turns: every second one from `start` on. */
function alternateRows(start: number, firstRow: number, numRows: number): Int32Array {
  return Int32Array.from({ length: numRows }, (_, index) => start + 2 * (firstRow + index));
}

/** Runs as many tasks at once as there are threads. The others wait, so that little is held in memory. */
async function convertAll(tasks: readonly ConversionTask[], options: PrepareWeightsOptions): Promise<void> {
  const { onProgress, signal } = options;
  const total = tasks.reduce((sum, task) => sum + sourceBytes(task), 0);
  const numThreads = total <= INLINE_BYTES ? 0 : options.numThreads;
  await using converter = numThreads === 0 ? inlineConverter : await startThreads(numThreads);

  // One shared iterator: each thread takes the next task when it has finished one.
  const queue = tasks.values();
  let completed = 0;
  const convertNext = async (): Promise<void> => {
    for (const task of queue) {
      if (signal?.aborted === true) throw new EngineError("aborted", "Preparing the weights was aborted.");
      const fault = await converter.convert(task);
      if (fault !== null) throw new EngineError("invalid_checkpoint", `Tensor ${task.source.name} ${fault}.`);
      completed += sourceBytes(task);
      onProgress?.({ task: "preparing weights", completed, total, unit: "bytes" });
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, numThreads) }, convertNext));
}

interface Converter extends AsyncDisposable {
  convert(task: ConversionTask): ConversionFault | Promise<ConversionFault>;
}

const inlineConverter: Converter = {
  convert: convertRows,
  async [Symbol.asyncDispose]() {},
};

async function startThreads(numThreads: number): Promise<Converter> {
  // Imported here because most starts have nothing to convert.
  const { Piscina } = await import("piscina");
  const filename = moduleUrl("./conversion-worker", import.meta.url).href;
  const pool = new Piscina<ConversionTask, ConversionFault>({
    filename,
    name: convertRows.name,
    minThreads: numThreads,
    maxThreads: numThreads,
  });
  return {
    convert: (task) => pool.run(task),
    [Symbol.asyncDispose]: () => pool.destroy(),
  };
}

function sourceBytes({ source, numRows, columns }: ConversionTask): number {
  return Math.round((source.byteLength * numRows * columns) / countElements(source.shape));
}
