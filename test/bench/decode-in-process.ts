/**
 * Decodes with one thread in a process of its own, and prints tokens per second by the number of sequences as JSON.
 *
 * Usage: decode-in-process.ts DTYPE moved|unmoved
 */
import { argv } from "node:process";

import { HugePages } from "../../engine/runtime/huge-pages.ts";
import { BareLoop } from "./bare-loop.ts";
import { concurrencies, engineOptions } from "./settings.ts";
import type { BenchDtype } from "./settings.ts";

/** Short, so that keys and values, which are not moved, count little. */
const CONTEXT_TOKENS = 32;
const stepsOf = { 1: 96, 8: 48, 32: 24 } as const;

const [dtype, form] = argv.slice(2) as [BenchDtype, string];
const earlier = HugePages.inUse();
using loop = await BareLoop.create({ ...engineOptions(dtype), numThreads: 1 });
const weights = HugePages.inUse(earlier);
const { numBlocks } = weights;
if (form === "moved") while (weights.moveNext());
const speeds = concurrencies.map((count) => [count, loop.decodeTokensPerSecond(count, CONTEXT_TOKENS, stepsOf[count])]);
console.log(JSON.stringify({ numBlocks, speeds: Object.fromEntries(speeds) }));
