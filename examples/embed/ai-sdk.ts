/**
 * The same through the Vercel AI SDK: streamed text about a picture, then one of two answers.
 *
 *     npm install /path/to/fovea-0.1.0.tgz ai @ai-sdk/provider
 *     node ai-sdk.ts picture.png
 */
import { readFile } from "node:fs/promises";
import { generateText, streamText } from "ai";
import { createEngine } from "fovea";
import { fovea } from "fovea/ai";

const [file] = process.argv.slice(2);
if (file === undefined) {
  console.error("usage: node ai-sdk.ts PICTURE");
  process.exit(2);
}
const engine = createEngine({ model: process.env.MODEL });
const model = fovea(engine);
const picture = { type: "file", data: await readFile(file), mediaType: "image" } as const;

try {
  const { textStream } = streamText({
    model,
    messages: [{ role: "user", content: [picture, { type: "text", text: "Describe the picture." }] }],
  });
  for await (const text of textStream) process.stdout.write(text);
  process.stdout.write("\n");

  // Options that the AI SDK lacks go into provider options; a schema goes into `output: Output.object({ schema })`.
  const { text } = await generateText({
    model,
    messages: [{ role: "user", content: [picture, { type: "text", text: "Is there a red circle?" }] }],
    providerOptions: { fovea: { choice: ["Yes", "No"] } },
  });
  console.log(`A red circle: ${text}`);
} finally {
  await engine.close();
}
