/**
 * A separate process for `webgpu.test.ts`, because the environment at the start of a process selects the Vulkan driver.
 * Usage: node webgpu-answer.ts CACHE_FOLDER; prints the tokens of an answer about a picture and those of transformers,
 * as JSON.
 */
import { loadGoldens } from "../../../support/checkpoints/goldens.ts";
import { ask, exports, startExport } from "./export-engine.ts";

const [cacheFolder] = process.argv.slice(2) as [string];
const name = "onnx-exports/smolvlm";
const { toPrompt } = exports.find((candidate) => candidate.name === name)!;
const recorded = (await loadGoldens(name)).cases.find((candidate) => candidate.name === "one")!;
const golden = { ...recorded, greedyTokenIds: recorded.greedyTokenIds.slice(0, 4) };

// SwiftShader computes ONNX Runtime's flash attention, which takes over at 32 tokens, wrongly; and has no 16 bits.
const engine = await startExport(name, cacheFolder, { device: "webgpu", dtype: "float32", maxNumBatchedTokens: 16 });
const { tokenIds } = await ask(engine, toPrompt, golden);
await engine.close();
process.stdout.write(JSON.stringify({ expected: golden.greedyTokenIds, tokenIds }));
