import { expect, test } from "vitest";

import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { BatchUpdate } from "../../../../engine/sampling/contract/logits-processor.ts";
import { RowStates } from "../../../../engine/sampling/contract/row-states.ts";

/** A request adds the state its `state` argument names; without one it does not use the processor. */
function createStates(...values: readonly (number | null)[]): RowStates<number> {
  const states = new RowStates<number>();
  update(states, { added: values.map((value, index) => [index, value] as const) });
  return states;
}

interface Update {
  readonly removed?: readonly number[];
  readonly added?: readonly (readonly [index: number, value: number | null])[];
  readonly moved?: BatchUpdate["moved"];
}

function update(states: RowStates<number>, { removed = [], added = [], moved = [] }: Update): void {
  const requests = added.map(([index, value]) => ({
    index,
    params: createSamplingParams({ extraArgs: value === null ? {} : { state: value } }),
    promptTokenIds: [],
    outputTokenIds: [],
  }));
  states.update({ removed, added: requests, moved }, ({ params }) => params.extraArgs.state as number);
}

const cases: [string, Update, [number, number][]][] = [
  [
    "a removed row loses its state",
    { removed: [1] },
    [
      [0, 10],
      [2, 12],
    ],
  ],
  [
    "an added row discards what was there, also when it uses nothing",
    {
      added: [
        [0, null],
        [1, 0],
      ],
    },
    [
      [2, 12],
      [1, 0],
    ],
  ],
  [
    "a move replaces the target's state",
    { moved: [{ from: 2, to: 0, directionality: "unidirectional" }] },
    [
      [0, 12],
      [1, 11],
    ],
  ],
  [
    "a move of a row without state clears the target",
    { moved: [{ from: 7, to: 0, directionality: "unidirectional" }] },
    [
      [1, 11],
      [2, 12],
    ],
  ],
  [
    "a swap exchanges",
    { moved: [{ from: 0, to: 2, directionality: "swap" }] },
    [
      [0, 12],
      [1, 11],
      [2, 10],
    ],
  ],
  [
    "a swap with a row without state empties the other",
    { moved: [{ from: 7, to: 0, directionality: "swap" }] },
    [
      [1, 11],
      [2, 12],
      [7, 10],
    ],
  ],
];

test.for(cases)("%s", ([, change, expected]) => {
  const states = createStates(10, 11, 12);
  update(states, change);
  expect(new Map(states.entries())).toEqual(new Map(expected));
});
