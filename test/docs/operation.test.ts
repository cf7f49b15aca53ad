/** The table of errors in docs/operation.md has the statuses and codes of answers. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { EngineError } from "../../engine/index.ts";
import type { EngineErrorCode } from "../../engine/index.ts";
import { CLIENT_CLOSED_REQUEST, toErrorAnswer } from "../../functions/http/errors.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(join(repository, "docs/operation.md"), "utf8");
const rows = [...page.matchAll(/^\| (\d{3}) \| (`[^|]*`) \|/gm)].flatMap(([, status, codes]) =>
  [...codes!.matchAll(/`([a-z_]+)`/g)].map(([, code]) => `${status} ${code}`),
);

const engineCodes: Record<EngineErrorCode, true> = {
  invalid_argument: true,
  prompt_too_long: true,
  too_many_images: true,
  invalid_image_reference: true,
  image_unreachable: true,
  image_too_large: true,
  invalid_image: true,
  too_many_videos: true,
  video_too_large: true,
  invalid_video: true,
  document_too_large: true,
  invalid_document: true,
  queue_full: true,
  aborted: true,
  not_ready: true,
  closed: true,
  engine_stalled: true,
  unsupported_model: true,
  invalid_checkpoint: true,
  invalid_configuration: true,
  invalid_logits_processor: true,
  logits_processor_failed: true,
  runtime_failed: true,
  out_of_memory: true,
  device_lost: true,
  runtime_missing: true,
  internal: true,
};

/** Answers to errors of the engine, without that of a client that has disconnected. */
const ofEngine = Object.keys(engineCodes).flatMap((code) => {
  const { status, body } = toErrorAnswer(new EngineError(code as EngineErrorCode, "It failed."), "id");
  return status === CLIENT_CLOSED_REQUEST ? [] : [`${status} ${body.error.code}`];
});

test("the table has every error of the engine", () => {
  expect(rows).toEqual(expect.arrayContaining([...new Set(ofEngine)]));
});

test("the table's other errors are those of the HTTP layer", () => {
  const sources = globSync("functions/**/*.ts", { cwd: repository }).map((file) =>
    readFileSync(join(repository, file), "utf8"),
  );
  const thrown = sources.flatMap((source) =>
    [...source.matchAll(/new HttpError\(\s*(\d{3}),\s*(?:\w+\[\w+\] \?\? )?"([a-z_]+)"/g)].map(
      ([, status, code]) => `${status} ${code}`,
    ),
  );
  const others = rows.filter((row) => !ofEngine.includes(row));
  expect(others).not.toHaveLength(0);
  expect(thrown).toEqual(expect.arrayContaining(others));
});
