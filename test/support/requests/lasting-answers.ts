/** Requests whose answers still run when something else happens, however fast the machine is. */
import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { createTemporaryFolder } from "../temporary-folder.ts";

const processor = fileURLToPath(new URL("../engine/lasting-processor.ts", import.meta.url));

/** Of a logits processor, for engines of tests that have such requests. */
export const lastingClassName = `${processor}:Lasting`;

/** Settings of services that have them. */
export const withLastingAnswers = { LOGITS_PROCESSORS: lastingClassName };

function lastingUntil(file: string) {
  return { max_tokens: 1_500, ignore_eos: true, stop_token_ids: [67], vllm_xargs: { lasts_until: file } };
}

/** Fields of a request whose answer lasts until it is ended from outside. */
export const endless = lastingUntil(join(tmpdir(), `never-${randomUUID()}`));

export interface LastingAnswers extends AsyncDisposable {
  /** Fields of requests whose answers last. */
  readonly fields: ReturnType<typeof lastingUntil>;
  /** Lets the answers end with the finish reason `stop`, and later ones at their first token. */
  readonly finish: () => Promise<void>;
}

export async function createLastingAnswers(): Promise<LastingAnswers> {
  const folder = await createTemporaryFolder();
  const file = join(folder.path, "finish");
  return {
    fields: lastingUntil(file),
    finish: () => writeFile(file, ""),
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  };
}
