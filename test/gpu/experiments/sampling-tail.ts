/** 6: choosing candidates on the device: how long it takes, in which order ties come, and what is chosen. */
import { numCandidatesOf } from "../../../engine/models/decoder-graph/candidates.ts";
import type { Session } from "../../../engine/runtime/session.ts";
import { MAX_MASS_ERROR } from "../../../engine/sampling/draw/candidate-draw.ts";
import { bindTail, buildTail } from "../candidates-of-rows.ts";
import { loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { randomNumbers, rounded } from "../numbers.ts";
import type { FloatType } from "../numbers.ts";
import { medianOf, timeRuns } from "../timing.ts";

export const samplingTail: Experiment = {
  id: "6",
  title: "Candidates of the next token, chosen on the device",
  async run(context) {
    const { report, device } = context;
    const isSmall = device === "cpu";
    for (const vocabSize of isSmall ? [40, 1000] : [32_000, 49_152, 128_256, 262_144]) {
      await report.group(`a vocabulary of ${vocabSize}`, async () => {
        using session = loadGraph(context, `sampling-tail-${vocabSize}`, buildTail(vocabSize));
        for (const numRows of isSmall ? [3] : [1, 8, 32, 128]) {
          const label = `${numRows} rows of ${vocabSize}`;
          await report.attempt(label, () => measure(context, session, { numRows, vocabSize, label }));
        }
        await report.attempt("ties", () => ties(context, session, vocabSize));
      });
    }
  },
};

interface MeasuredRows {
  readonly numRows: number;
  readonly vocabSize: number;
  readonly label: string;
}

/** The first rows are compared with the host's. Their logits are rounded as heads of 16 bits round them. */
function measure({ report, device }: ExperimentContext, session: Session, options: MeasuredRows): void {
  const { numRows, vocabSize, label } = options;
  const types: readonly FloatType[] = ["float32", "bfloat16", "float16"];
  const values = randomNumbers(numRows * vocabSize, 9, 8);
  const numCompared = Math.min(numRows, 6);
  for (let row = 0; row < numCompared; row++) {
    const place = row * vocabSize;
    values.set(rounded(types[row % types.length]!, values.slice(place, place + vocabSize)), place);
  }
  const scale = 1.25;
  using tail = bindTail(session, vocabSize, values, new Float32Array(numRows).fill(scale));
  tail.compute();
  tail.keep();
  let numWrong = 0;
  let massError = 0;
  for (let index = 0; index < numCompared; index++) {
    const row = values.subarray(index * vocabSize, (index + 1) * vocabSize);
    const sorted = row.toSorted().reverse();
    const { values: largest, tokenIds, mass } = tail.logits.deferred(0).candidatesOf(index);
    // Equal logits may stand in any order.
    const isWrong = (logit: number, place: number): boolean =>
      logit !== sorted[place] || row[tokenIds[place]!] !== logit;
    numWrong += largest.length === numCandidatesOf(vocabSize) ? largest.filter(isWrong).length : 1;
    numWrong += largest.length - new Set(tokenIds).size;
    const expected = row.reduce((sum, logit) => sum + Math.exp((logit - sorted[0]!) * scale), 0);
    massError = Math.max(massError, Math.abs(mass / expected - 1));
  }
  report.check(`${label}: the candidates are the host's`, numWrong === 0, `${numWrong} differ`);
  report.check(`${label}: the mass is the host's`, massError < MAX_MASS_ERROR, `error ${massError.toExponential(1)}`);
  const numRuns = device === "cpu" ? 3 : 50;
  const compute = timeRuns(() => tail.compute(), { numRuns });
  report.figure(`${label}: candidates on the device`, medianOf(compute) * 1000, "us");
  const keep = timeRuns(() => tail.keep(), { numRuns });
  report.figure(`${label}: candidates to the host`, medianOf(keep) * 1000, "us");
  const read = timeRuns(() => tail.logits.read(0, values), { numRuns: Math.min(numRuns, 10) });
  report.figure(`${label}: all logits to the host`, medianOf(read) * 1000, "us");
}

/** The host orders equal logits by id, and reads a row whose candidates may lack some of them. */
function ties({ report }: ExperimentContext, session: Session, vocabSize: number): void {
  const values = new Float32Array(vocabSize).fill(-1);
  const tied = [3, 17, 18, 31, vocabSize - 1];
  for (const id of tied) values[id] = 5;
  using tail = bindTail(session, vocabSize, values, Float32Array.of(1));
  tail.compute();
  tail.keep();
  const found = [...tail.logits.deferred(0).candidatesOf(0).tokenIds.subarray(0, tied.length)];
  const ascending = found.toSorted((left, right) => left - right).join(", ");
  report.check(`ties among ${vocabSize}: each token is a candidate once`, ascending === tied.join(", "), ascending);
  report.note(`The device orders equal logits among ${vocabSize} so: ${found.join(", ")}.`);
}
