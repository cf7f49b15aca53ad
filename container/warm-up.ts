/**
 * Runs once while an image is built: serves one request about a picture. This fills the compile cache with every
 * module, compiled and without types, and fails the build of an image that cannot serve.
 *
 * Runs on the CPU for every image: the modules are the same, and machines that build images have no GPU.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import sharp from "sharp";

const main = fileURLToPath(new URL("../functions/cli/main.js", import.meta.url));

// The service loads it only if a setting needs it, because the SDK takes longer than everything else together.
await import("@aws-sdk/client-s3");
await import("../functions/redis/redis-store.ts");
await import("../functions/batch/redis-job-queue.ts");
await import("../functions/telemetry/open-telemetry.ts");
await import("@opentelemetry/exporter-trace-otlp-proto");
await import("@opentelemetry/exporter-metrics-otlp-proto");

const service = spawn(process.execPath, [main], {
  env: { ...process.env, DEVICE: "cpu", HOST: "127.0.0.1", PORT: "0" },
  stdio: ["ignore", "pipe", "inherit"],
});
const exited = once(service, "exit");
const port = await portOfReadyService();
const answer = await describePicture(port);
service.kill("SIGTERM");
const [exitCode] = (await exited) as [number | null];
if (exitCode !== 0) throw new Error(`The service ended with ${exitCode} after SIGTERM; expected 0.`);
process.stdout.write(`Warm: ${answer}\n`);

async function portOfReadyService(): Promise<number> {
  let port: number | null = null;
  for await (const line of createInterface({ input: service.stdout })) {
    process.stdout.write(`${line}\n`);
    const entry = JSON.parse(line) as { readonly message: string; readonly port?: number };
    if (entry.message === "Listening.") port = entry.port ?? null;
    if (entry.message === "Ready." && port !== null) {
      service.stdout.resume();
      return port;
    }
  }
  throw new Error("The service ended before it was ready.");
}

async function describePicture(port: number): Promise<string> {
  const picture = await sharp({ create: { width: 96, height: 96, channels: 3, background: "red" } })
    .png()
    .toBuffer();
  const content = [
    { type: "image_url", image_url: { url: `data:image/png;base64,${picture.toString("base64")}` } },
    { type: "text", text: "Describe the picture." },
  ];
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages: [{ role: "user", content }], max_tokens: 16 }),
  });
  if (!response.ok) throw new Error(`The service answered ${response.status}: ${await response.text()}`);
  const { choices } = (await response.json()) as { choices: readonly { message: { content: string } }[] };
  return choices[0]!.message.content;
}
