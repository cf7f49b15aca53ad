/** Time from the start of a process to its open port, and to the first token about a picture. */
import { readFile } from "node:fs/promises";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";

import { limitFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess } from "./server-process.ts";

const picture = new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url);

/** Milliseconds until the first content chunk of a streamed answer, including rejections while the model loads. */
async function firstTokenMs(): Promise<{ portOpenMs: number; firstTokenMs: number }> {
  const image = `data:image/png;base64,${(await readFile(picture)).toString("base64")}`;
  await using server = await startServerProcess({});
  const body = JSON.stringify({
    messages: [
      {
        role: "user",
        content: [
          { type: "image_url", image_url: { url: image } },
          { type: "text", text: "How many shapes are there?" },
        ],
      },
    ],
    stream: true,
  });
  for (;;) {
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    });
    if (response.status === 503) {
      await response.arrayBuffer();
      await delay(10);
      continue;
    }
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    let text = "";
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      if (/"content":"[^"]/.test(text)) break;
    }
    return { portOpenMs: server.portOpenMs, firstTokenMs: performance.now() - server.startedAt };
  }
}

const portOpenLimitMs = 300;
const firstTokenLimitMs = 1500;

export async function benchStartUp(rounds: number): Promise<Figure[]> {
  await firstTokenMs(); // The first start fills the caches on disk, like an image build.
  const runs = [];
  for (let round = 0; round < rounds; round++) {
    const run = await firstTokenMs();
    const times = `port open after ${run.portOpenMs.toFixed(0)} ms, first token after ${run.firstTokenMs.toFixed(0)} ms`;
    reportProgress(`round ${round + 1} of ${rounds}: ${times}`);
    runs.push(run);
  }
  return [
    limitFigure({
      name: "process start to port open",
      unit: "ms",
      values: runs.map((run) => run.portOpenMs),
      comparison: "<=",
      limit: portOpenLimitMs,
    }),
    limitFigure({
      name: "process start to first token, shipped checkpoint",
      unit: "ms",
      values: runs.map((run) => run.firstTokenMs),
      comparison: "<=",
      limit: firstTokenLimitMs,
    }),
  ];
}
