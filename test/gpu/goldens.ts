/** Recorded conversations on a device, in either layout of the KV cache. */
import { join } from "node:path";

import type { DtypeName, EngineConfig } from "../../engine/contract/config.ts";
import { buildModel } from "../../engine/models/build-model.ts";
import type { KvLayout } from "../../engine/models/built-model.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { createWorkerOptions, goldenRequest, SteppedEngine } from "../engine/core/golden-engine.ts";
import { loadGoldens } from "../support/checkpoints/goldens.ts";
import type { goldenCheckpoints } from "../support/checkpoints/goldens.ts";
import type { ExperimentContext } from "./experiment.ts";
import { compareTokens } from "./near-ties.ts";

export type GoldenName = (typeof goldenCheckpoints)[number];

const maxModelLen = 512;

/** Two logits this close, as a share of a row's range, may change places where numbers are rounded to 16 bits. */
const nearTie: Readonly<Partial<Record<DtypeName, number>>> = { float32: 1e-5, float16: 0.02, bfloat16: 0.1 };

/** Checks every recorded answer, alone and together with the others. */
export async function checkGoldens(
  { device, folder, report }: Pick<ExperimentContext, "device" | "folder" | "report">,
  name: GoldenName,
  dtype: DtypeName,
  kvLayout: KvLayout,
  overrides: Partial<EngineConfig> = {},
): Promise<void> {
  const cacheFolder = join(folder, "cache");
  const { checkpointFolder, cases } = await loadGoldens(name);
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder });
  const model = await buildModel(checkpoint, { dtype, device, kvLayout, maxModelLen, cacheFolder, numThreads: 2 });
  const { vocabSize } = model.decoder;
  for (const isTogether of [false, true]) {
    using engine = await SteppedEngine.create(createWorkerOptions(model, { device, ...overrides }));
    for (const [index, golden] of cases.entries()) {
      engine.add(goldenRequest(`${index}`, golden, model));
      if (!isTogether) await engine.runToEnd();
    }
    await engine.runToEnd();
    cases.forEach((golden, index) => {
      const error = engine.errorOf(`${index}`);
      const comparison = compareTokens(engine.tokensOf(`${index}`), golden, vocabSize);
      const { isEqual, numEqual, gap } = comparison;
      const detail = isEqual
        ? "equal"
        : `${numEqual} of ${golden.greedyTokenIds.length} equal, then a gap of ${gap.toPrecision(2)} of the range`;
      const label = `${name} ${dtype} ${kvLayout.kind}: ${golden.name} ${isTogether ? "with the others" : "alone"}`;
      report.check(label, error == null && gap <= (nearTie[dtype] ?? 0), error?.message ?? detail);
    });
  }
}
