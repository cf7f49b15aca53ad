import { expect, test } from "vitest";

import type { AttackClass } from "./attack.ts";
import { describeFault } from "./describe.ts";
import { numbers, sendJson, startFaultyService } from "./faulty-service.ts";
import type { Fault as PutIn } from "./faulty-service.ts";
import { runRoundOn } from "./round.ts";
import type { RoundOptions, RoundReport } from "./round.ts";
import { Target } from "./target.ts";

async function attack(
  fault: PutIn,
  options: Partial<RoundOptions> = {},
  attackClass: AttackClass = numbers,
): Promise<RoundReport> {
  await using target = await Target.prepare(attackClass, {
    start: () => startFaultyService(fault),
    settleDeadlineMs: 100,
  });
  return await runRoundOn(target, attackClass, {
    seed: 1,
    cases: { count: numbers.numCases },
    maxFaults: 1,
    ...options,
  });
}

/** Size from which the service is faulty. */
const from = 300;
const ordinaryError = { error: { message: "No.", type: "invalid_request_error", param: null, code: "no" } };

test("a service without a fault passes, and all its answers are counted", async () => {
  const report = await attack((size, response) => {
    if (size > from) sendJson(response, 400, ordinaryError);
  });
  expect(report.faults).toEqual([]);
  expect(report.numCases).toBe(numbers.numCases);
  expect(report.statuses.get(200)! + report.statuses.get(400)!).toBe(numbers.numCases);
});

test.for<[string, PutIn, RegExp]>([
  [
    "a status of 500",
    (size, response) => size >= from && sendJson(response, 500, ordinaryError),
    /^Status 500, no: No\.$/,
  ],
  [
    "an error of another form",
    (size, response) => size >= from && sendJson(response, 400, { detail: 1 }),
    /OpenAI's form/,
  ],
  ["an error without a body", (size, response) => size >= from && response.writeHead(400).end(), /OpenAI's form/],
  ["a secret", (size, response) => size >= from && sendJson(response, 200, { a: "the-secret" }), /shows "the-secret"/],
  [
    "a stack",
    (size, response) => size >= from && sendJson(response, 200, { a: "Error\n    at run (a.ts:1:2)" }),
    /shows the inside/,
  ],
  [
    "a path of this machine",
    (size, response) => size >= from && sendJson(response, 200, { a: import.meta.dirname }),
    /shows /,
  ],
  ["a closed connection", (size, response) => size >= from && response.destroy(), /^No answer to POST \/attack/],
  [
    "an error in the log",
    (size, _, { complaints }) => size >= from && complaints.push('"level":"error"'),
    /^The service logs: "level":"error"/,
  ],
  [
    "a costly request",
    (size, _, state) => size >= from && (state.cpuSeconds += 2),
    /^CPU time .* 2\.00 s; the limit is 1\.00 s/,
  ],
])("finds %s, isolates it and makes it as small as possible", async ([, fault, problem]) => {
  const { faults } = await attack(fault);
  expect(faults).toHaveLength(1);
  expect(faults[0]!.problems.join("\n")).toMatch(problem);
  expect(faults[0]!.shown).toBe(String(from));
});

test.for<[string, PutIn, RegExp]>([
  [
    "later requests fail",
    (size, response, state) => {
      if (size >= from) state.isPoisoned = true;
      if (state.isPoisoned) sendJson(response, 200, {});
    },
    /An ordinary request \w+ took \d+ steps, not 1/,
  ],
])("finds that %s", async ([, fault, problem]) => {
  const { faults } = await attack(fault);
  expect(faults[0]!.problems.join("\n")).toMatch(problem);
});

test.for<[string, PutIn, RegExp]>([
  ["memory does not come back", (_, __, state) => (state.numHeldBytes += 2 ** 20), /holds \d+ bytes more than before/],
  ["sockets stay open", (_, __, state) => (state.numSockets += 1), /\d+ of TCPSocketWrap are open; before there were/],
  [
    "sequences run on",
    (_, __, state) => (state.numSequences += 1),
    /\d+ sequences .* are in progress although no client waits/,
  ],
])("finds that %s", async ([, fault, problem]) => {
  const { faults } = await attack(fault);
  expect(faults.flatMap(({ problems }) => problems).join("\n")).toMatch(problem);
});

test("a fault is found again from its report", async () => {
  const fault: PutIn = (size, response) => size >= from && sendJson(response, 500, ordinaryError);
  const found = (await attack(fault)).faults[0]!;
  expect(describeFault(found)).toContain(`again: npm run attack -- --class numbers --seed 1 --case ${found.path}`);
  const again = await attack(fault, { cases: { path: found.path! }, shrinkMs: 0 });
  expect(again.numCases).toBe(1);
  expect(again.faults).toEqual([found]);
});

test("a route can be selected, and its faults are found again", async () => {
  const fault: PutIn = (size, response) => size >= from && sendJson(response, 500, ordinaryError);
  const found = (await attack(fault, { route: "/odd" })).faults[0]!;
  expect(found.route).toBe("POST /odd");
  expect(Number(found.shown)).toBeGreaterThan(from);
  expect(describeFault(found)).toContain("--route /odd --case");
  const again = await attack(fault, { route: "/odd", cases: { path: found.path! }, shrinkMs: 0 });
  expect(again.faults).toEqual([found]);
});

test("errors of an operator's own code can be allowed", async () => {
  const fault: PutIn = (_, response, { complaints }) => {
    complaints.push('{"level":"error","code":"no"}');
    sendJson(response, 500, ordinaryError);
  };
  expect((await attack(fault, {}, { ...numbers, allowedErrorCodes: ["no"] })).faults).toEqual([]);
});

test("another seed makes different cases", async () => {
  const sizes = async (seed: number): Promise<number[]> => {
    const seen: number[] = [];
    await attack((size) => void seen.push(size), { seed });
    return seen;
  };
  const first = await sizes(1);
  expect(await sizes(1)).toEqual(first);
  expect(await sizes(2)).not.toEqual(first);
});
