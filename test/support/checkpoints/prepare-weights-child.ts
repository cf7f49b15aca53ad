/**
 * Program: prepares one tensor of a checkpoint and prints its file. With `kill`, ends itself by SIGKILL once the first
 * rows are written. Arguments: checkpoint folder, cache folder, `WeightRequest` as JSON, `kill` or nothing.
 */
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../engine/weights/prepare-weights.ts";
import type { WeightRequest } from "../../../engine/weights/prepared-weights.ts";

const [folder, cacheFolder, requestJson, mode] = process.argv.slice(2);
const request = JSON.parse(requestJson!) as WeightRequest;
const checkpoint = await openCheckpoint(folder!, { cacheFolder: cacheFolder! });
const onProgress = mode === "kill" ? (): void => void process.kill(process.pid, "SIGKILL") : undefined;
const prepared = await prepareWeights(checkpoint, [request], { cacheFolder: cacheFolder!, numThreads: 2, onProgress });
process.stdout.write(prepared.get(request.name)?.weight.file ?? "");
