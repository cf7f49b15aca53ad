/** Counts the source files on three ways through the service: of a request, of a custom processor and of a checkpoint. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { limitFigure, plainFigure } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess, untilReady } from "./server-process.ts";

/** Few enough to read in an hour. */
const MAX_FILES_OF_REQUEST = 116;
/** All threads have written by then, also on a busy machine. */
const SETTLE_MS = 5000;

const root = new URL("../../", import.meta.url).href;
const hook = new URL("./take-coverage.ts", import.meta.url).href;
const examples = fileURLToPath(new URL("../../examples/", import.meta.url));
const picture = readFileSync(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url), "base64");

/** Paths of the files of which a function was entered. */
type Entered = ReadonlySet<string>;

interface Ways {
  /** From the start of the process until the model has made its first steps. */
  readonly start: Entered;
  /** From `POST /v1/chat/completions`, a stream about a picture, to its end. */
  readonly request: Entered;
}

export async function benchHops(): Promise<Figure[]> {
  const { start, request } = await walk({});
  const steered = await walk({
    LOGITS_PROCESSOR_PATH: examples,
    LOGITS_PROCESSORS: "steering.target-token:TargetToken",
  });
  const sampling = [...steered.request].filter((file) => file.startsWith("engine/sampling/"));
  const ofProcessor = new Set([...steered.start.difference(start), ...sampling]);
  const ofCheckpoint = [...start].filter((file) => file.startsWith("engine/"));
  return [
    limitFigure({
      name: "a streamed chat completion about a picture",
      unit: "files",
      values: [request.size],
      comparison: "<=",
      limit: MAX_FILES_OF_REQUEST,
    }),
    plainFigure("of a custom logits processor, from the setting to `apply`", "files", [ofProcessor.size]),
    plainFigure("of a checkpoint, from safetensors to the first run", "files", [ofCheckpoint.length]),
  ];
}

async function walk(settings: Readonly<Record<string, string>>): Promise<Ways> {
  const folder = mkdtempSync(join(tmpdir(), "fovea-hops-"));
  try {
    const coverage = join(folder, "coverage");
    const environment = {
      ...settings,
      NODE_V8_COVERAGE: coverage,
      CACHE_FOLDER: join(folder, "cache"),
      BATCH_STORE: "none",
    };
    await using server = await startServerProcess(environment, ["--import", hook]);
    await untilReady(server);
    const start = await takeEntered(server.pid, coverage);
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(question),
    });
    if (!response.ok) throw new Error(`The server answered ${response.status}.`);
    await response.text();
    return { start, request: await takeEntered(server.pid, coverage) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const question = {
  stream: true,
  max_tokens: 3,
  messages: [
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } },
        { type: "text", text: "Describe the picture." },
      ],
    },
  ],
};

interface Script {
  readonly url: string;
  readonly functions: readonly {
    readonly ranges: readonly [{ readonly startOffset: number; readonly count: number }];
  }[];
}

/** Takes the coverage of all threads since the last call. */
async function takeEntered(pid: number, folder: string): Promise<Entered> {
  process.kill(pid, "SIGUSR2");
  await delay(SETTLE_MS);
  const entered = new Set<string>();
  for (const name of readdirSync(folder)) {
    const file = join(folder, name);
    const { result } = JSON.parse(readFileSync(file, "utf8")) as { readonly result: readonly Script[] };
    for (const { url, functions } of result) {
      if (!url.startsWith(root) || url.includes("/node_modules/") || url.includes("/test/")) continue;
      // The module itself is the function that starts with its file.
      const isEntered = functions.some(({ ranges: [whole] }) => whole.startOffset > 0 && whole.count > 0);
      if (isEntered) entered.add(url.slice(root.length));
    }
    rmSync(file);
  }
  return entered;
}
