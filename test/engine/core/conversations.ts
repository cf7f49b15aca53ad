/** Conversations whose turns arrive while earlier ones still run, against an engine that answers one after the other. */
import { expect } from "vitest";

import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import type { SteppedEngine } from "./golden-engine.ts";

export interface Turn {
  /** Steps of the engine before the next turn arrives. */
  readonly numSteps: number;
  readonly isAborted: boolean;
}

interface Engines {
  readonly engine: SteppedEngine;
  /** Without reuse. It has answered all earlier turns when a request is made. */
  readonly reference: SteppedEngine;
}

/**
 * Runs the turns on both engines and compares their tokens; those of an aborted turn are the first ones.
 *
 * @param requestOf Returns the request of a turn; its id must be the index.
 */
export async function expectSameTokens<AnyTurn extends Turn>(
  { engine, reference }: Engines,
  turns: readonly AnyTurn[],
  requestOf: (
    turn: AnyTurn,
    index: number,
    earlier: readonly EngineRequest[],
  ) => EngineRequest | Promise<EngineRequest>,
): Promise<void> {
  const requests: EngineRequest[] = [];
  for (const [index, turn] of turns.entries()) {
    const request = await requestOf(turn, index, requests);
    requests.push(request);
    reference.add(request);
    await reference.runToEnd();
    engine.add(request);
    for (let step = 0; step < turn.numSteps; step++) engine.step();
    if (turn.isAborted) engine.abort(request.requestId);
  }
  await engine.runToEnd();
  for (const [index, { isAborted }] of turns.entries()) {
    const tokenIds = engine.tokensOf(`${index}`);
    const expected = reference.tokensOf(`${index}`);
    expect(tokenIds).toEqual(isAborted ? expected.slice(0, tokenIds.length) : expected);
  }
  expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
}

/** Up to `numKept` tokens of a request's prompt and answer, then `added`, with the images that are whole among them. */
export function continuationOf(
  { promptTokenIds, images }: EngineRequest,
  answer: readonly number[],
  numKept: number,
  added: readonly number[],
): Pick<EngineRequest, "promptTokenIds" | "images"> {
  const kept = [...promptTokenIds, ...answer].slice(0, numKept);
  const isWithin = ({ placeholder: { offset, length } }: EngineRequest["images"][number]): boolean =>
    offset + length <= kept.length;
  return { promptTokenIds: [...kept, ...added], images: images.filter(isWithin) };
}
