/**
 * Answers a question about a picture in this process: no HTTP, no server.
 *
 *     npm install /path/to/fovea-0.1.0.tgz
 *     node describe-picture.ts picture.png "What does the label say?"
 *
 * MODEL names the folder of a checkpoint. Without it, the small one that comes with Fovea answers; it knows drawn shapes
 * and printed labels only.
 */
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createEngine, createSamplingParams, EngineError } from "fovea";

const [file, question = "Describe the picture."] = process.argv.slice(2);
if (file === undefined) {
  console.error('usage: node describe-picture.ts PICTURE ["QUESTION"]');
  process.exit(2);
}
const picture = await readFile(file, "base64");

// Separate threads hold the model. Every option has a default, the same as the service's.
const engine = createEngine({ model: process.env.MODEL });

// The first Ctrl-C ends the answer and frees its resources.
const interrupted = new AbortController();
process.once("SIGINT", () => interrupted.abort());

try {
  await engine.ready;
  const outputs = engine.generate(
    {
      requestId: randomUUID(),
      prompt: {
        kind: "chat",
        messages: [
          {
            role: "user",
            content: [
              { type: "image", reference: `data:;base64,${picture}` },
              { type: "text", text: question },
            ],
          },
        ],
        addGenerationPrompt: true,
      },
      // Start from the checkpoint's own defaults, usually a temperature.
      samplingParams: createSamplingParams({ ...engine.modelInfo?.defaultSamplingParams, maxTokens: 256 }),
    },
    { signal: interrupted.signal },
  );
  // Each output contains the text that has become final since the last one. The last output says why the answer ended.
  for await (const { text, finishReason, numPromptTokens, numOutputTokens } of outputs) {
    process.stdout.write(text);
    if (finishReason === null) continue;
    process.stdout.write("\n");
    console.error(`${numPromptTokens} prompt tokens, ${numOutputTokens} output tokens, ended by ${finishReason}`);
  }
} catch (error) {
  if (!(error instanceof EngineError)) throw error;
  console.error(`${error.code}: ${error.message}`);
  process.exitCode = 1;
} finally {
  // Ends the threads. Without it, the process stays alive.
  await engine.close();
}
