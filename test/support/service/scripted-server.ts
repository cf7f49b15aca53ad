/** A separate process: the HTTP application over an engine whose answers never end. Prints its address on stdout. */
import { hang } from "../engine/scripted-engine.ts";
import { createTestApp, serveApp } from "./test-app.ts";

const endless = createTestApp({ script: ["a", hang], maxNumRequests: 20_000 });
const { baseUrl } = await serveApp(endless);
process.stdout.write(`${JSON.stringify({ baseUrl })}\n`);
// Reports on request how many sequences are still running.
process.stdin.on("data", () => {
  const { numRequests } = endless.service;
  process.stdout.write(`${JSON.stringify({ numRequests, numRunning: endless.engine.numRunning })}\n`);
});
