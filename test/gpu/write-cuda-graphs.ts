/**
 * Writes the CUDA graphs of every family, precision and KV layout, over weights of zeros, for place-nodes.py.
 * Usage: node test/gpu/write-cuda-graphs.ts FOLDER
 */
import { resolve } from "node:path";

import { writeCudaGraphs } from "./cuda-graph-files.ts";

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("Usage: node test/gpu/write-cuda-graphs.ts FOLDER");
await writeCudaGraphs(resolve(folder));
