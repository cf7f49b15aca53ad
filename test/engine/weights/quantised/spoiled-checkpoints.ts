/** Recorded checkpoints that are spoiled in one place, and the errors about them. */
import { expect, test } from "vitest";

import type { EngineErrorCode } from "../../../../engine/contract/errors.ts";
import { writeCheckpoint } from "../../../support/checkpoints/safetensors-writer.ts";
import { readSpoilable, type Spoilable } from "../../../support/checkpoints/spoil-checkpoint.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { buildFrom } from "../../models/direct-build.ts";

/** `name` is the recorded checkpoint. */
export type SpoiledCheckpoint = readonly [
  claim: string,
  name: string,
  spoil: (checkpoint: Spoilable) => void,
  code: EngineErrorCode,
  message: RegExp,
];

/** No model is built from any of them. */
export function testSpoiledCheckpoints(cases: readonly SpoiledCheckpoint[]): void {
  test.for(cases)("rejects %s", async ([, name, spoil, code, message]) => {
    await using folder = await createTemporaryFolder();
    await using cache = await createTemporaryFolder();
    const checkpoint = await readSpoilable(name);
    spoil(checkpoint);
    await writeCheckpoint(folder.path, checkpoint.config, [...checkpoint.tensors.values()]);
    await expect(buildFrom(folder.path, { cacheFolder: cache.path, dtype: "auto" })).rejects.toThrow(
      expect.objectContaining({ code, message: expect.stringMatching(message) }),
    );
  });
}
