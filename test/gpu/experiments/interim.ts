/** 4: slots as views of one allocation, decoded as a ragged batch: what there is should paged attention disappoint. */
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { checkGoldens } from "../goldens.ts";
import { buildRandomModel, smallShape, tinyShape } from "../models.ts";
import { createSteppedEngine, timeDecoding } from "../stepped-load.ts";
import { goldenDtypes } from "./whole-decoder.ts";

const names = ["llama", "mistral", "qwen2", "llava-default", "qwen2-vl", "fuyu"];

export const interim: Experiment = {
  id: "4",
  title: "Ragged decode over slot views",
  async run(context) {
    const { report } = context;
    for (const dtype of goldenDtypes(context)) {
      for (const name of context.device === "cpu" ? names.slice(0, 1) : names) {
        await report.attempt(`${name} ${dtype}`, () => checkGoldens(context, name, dtype, "slots"));
      }
    }
    await report.attempt("tokens per second", () => speeds(context));
  },
};

async function speeds(context: ExperimentContext): Promise<void> {
  const { device, folder, report } = context;
  const isSmall = device === "cpu";
  const shape = isSmall ? tinyShape : smallShape;
  const dtype = context.dtype ?? (isSmall ? "float32" : "float16");
  const maxModelLen = 2048;
  const kvLayout = { kind: "slots" } as const;
  const model = await buildRandomModel({ shape, dtype, device, kvLayout, maxModelLen, folder });
  for (const [index, numSequences] of (isSmall ? [1, 4] : [1, 8, 32]).entries()) {
    using engine = await createSteppedEngine(model, device, maxModelLen, { maxNumSequences: numSequences });
    const load = { numSequences, contextTokens: isSmall ? 16 : 256, numSteps: isSmall ? 4 : 64, salt: index + 1 };
    const { stepMs, runMs } = timeDecoding(engine, model.decoder, load);
    report.figure(`${shape.name} ${dtype}, ${numSequences} sequences`, (1000 * numSequences) / stepMs, "tokens/s");
    report.figure(`${shape.name} ${dtype}, ${numSequences} sequences, in runs`, runMs / stepMs, "of a step");
  }
}
