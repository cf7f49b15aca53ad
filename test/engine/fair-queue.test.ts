import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { FairQueue, MAX_OVERTAKING_WORK } from "../../engine/fair-queue.ts";
import type { QueuedWork } from "../../engine/fair-queue.ts";

interface Picture extends QueuedWork {
  readonly name: string;
}

const noLimits = { maxNumWaiting: 1_000_000, maxWaitingBytes: 1e12 };

/** Requests are identified by their names: `a` to `z`. */
const requests = new Map<string, object>();
function requestOf(name: string): object {
  const request = requests.get(name) ?? {};
  requests.set(name, request);
  return request;
}

/** `name`: the name of the request and the number of the picture. */
function picture(name: string, cost: number, { tenant = "", numBytes = 1, priority = 0 } = {}): Picture {
  return { name, tenant, request: requestOf(name[0]!), cost, numBytes, priority };
}

function pictures(
  request: string,
  count: number,
  cost: number,
  options: { tenant?: string; priority?: number } = {},
): Picture[] {
  return Array.from({ length: count }, (_, index) => picture(`${request}${index}`, cost, options));
}

function queueOf(...works: readonly Picture[]): FairQueue<Picture> {
  const queue = new FairQueue<Picture>(noLimits);
  for (const work of works) queue.add(work);
  return queue;
}

function takeNames(queue: FairQueue<Picture>, count = Number.POSITIVE_INFINITY): string[] {
  const names: string[] = [];
  while (names.length < count) {
    const work = queue.take();
    if (work === null) break;
    names.push(work.name);
  }
  return names;
}

test("an empty queue returns nothing", () => {
  expect(queueOf().take()).toBeNull();
});

test("equal pictures of two requests alternate, and those of one request stay in order", () => {
  const queue = queueOf(...pictures("a", 3, 10), ...pictures("b", 3, 10));
  expect(takeNames(queue)).toEqual(["a0", "b0", "a1", "b1", "a2", "b2"]);
});

test("a small late picture goes before the rest of a large request", () => {
  const queue = queueOf(...pictures("a", 16, 100));
  expect(takeNames(queue, 2)).toEqual(["a0", "a1"]);
  queue.add(picture("b0", 1));
  expect(takeNames(queue, 2)).toEqual(["b0", "a2"]);
});

test("a request with small pictures gets as much work as one with large pictures", () => {
  const queue = queueOf(...pictures("a", 10, 100), ...pictures("b", 100, 10));
  const names = takeNames(queue, 55);
  expect(names.filter((name) => name.startsWith("a"))).toHaveLength(5);
});

test("a tenant gains nothing by spreading its pictures over many requests", () => {
  const crowd = ["c", "d", "e", "f"].flatMap((request) => pictures(request, 4, 10, { tenant: "many" }));
  const queue = queueOf(...crowd, ...pictures("a", 4, 10, { tenant: "one" }));
  const names = takeNames(queue, 8);
  expect(names.filter((name) => name.startsWith("a"))).toEqual(["a0", "a1", "a2", "a3"]);
  expect(names.filter((name) => !name.startsWith("a"))).toEqual(["c0", "d0", "e0", "f0"]);
});

test("a small picture that comes late goes before those of many large requests, and of many tenants", () => {
  for (const isOfTenants of [false, true]) {
    const crowd = Array.from("abcdefghijklmnop", (request) =>
      picture(`${request}0`, 100, isOfTenants ? { tenant: request } : {}),
    );
    const queue = queueOf(...crowd);
    expect(takeNames(queue, 2)).toEqual(["a0", "b0"]);
    queue.add(picture("z0", 1, isOfTenants ? { tenant: "z" } : {}));
    expect(takeNames(queue, 2)).toEqual(["z0", "c0"]);
  }
});

test("a tenant that leaves and comes back for each picture gains nothing", () => {
  const queue = queueOf(...pictures("a", 30, 10, { tenant: "stays" }));
  let numOfOther = 0;
  let isWaiting = false;
  for (let round = 0; round < 30; round++) {
    if (!isWaiting) queue.add(picture("z0", 10, { tenant: "returns" }));
    isWaiting = queue.take()!.tenant !== "returns";
    if (!isWaiting) numOfOther++;
  }
  expect(numOfOther).toBeLessThanOrEqual(16);
});

/** With a small one there at any time, each has half: the large one is done when 200 are. */
test("a large picture is not overtaken for ever by small ones of ever new requests", () => {
  const queue = queueOf(picture("a0", 100));
  let numOvertaken = 0;
  for (;;) {
    queue.add({ ...picture("z", 1), request: {} });
    if (queue.take()!.name === "a0") break;
    numOvertaken++;
    expect(numOvertaken).toBeLessThanOrEqual(200);
  }
  expect(numOvertaken).toBeGreaterThan(0);
});

test("a removed picture is not taken, and can be removed again", () => {
  const [first, second, third] = pictures("a", 3, 1);
  const queue = queueOf(first!, second!, third!);
  queue.remove(second!);
  queue.remove(second!);
  expect([queue.numWaiting, queue.waitingBytes]).toEqual([2, 2]);
  expect(takeNames(queue)).toEqual(["a0", "a2"]);
  queue.remove(first!);
  expect([queue.numWaiting, queue.waitingBytes]).toEqual([0, 0]);
});

describe("a full queue", () => {
  const full = { maxNumWaiting: 4, maxWaitingBytes: 1_000 };

  test("evicts the latest picture of the request that has the largest part", () => {
    const queue = new FairQueue<Picture>(full);
    for (const work of pictures("a", 4, 1)) expect(queue.add(work)).toEqual([]);
    expect(queue.add(picture("b0", 1)).map(({ name }) => name)).toEqual(["a3"]);
    expect(takeNames(queue)).toEqual(["a0", "b0", "a1", "a2"]);
  });

  test("rejects the newcomer if all requests have the same part", () => {
    const queue = new FairQueue<Picture>(full);
    for (const request of ["a", "b", "c", "d"]) queue.add(picture(`${request}0`, 1));
    expect(queue.add(picture("e0", 1)).map(({ name }) => name)).toEqual(["e0"]);
    expect(queue.numWaiting).toBe(4);
  });

  test("evicts from the tenant with the largest part, even if another tenant has the largest request", () => {
    const queue = new FairQueue<Picture>(full);
    for (const request of ["c", "d", "e"]) queue.add(picture(`${request}0`, 1, { tenant: "many" }));
    queue.add(picture("a0", 1, { tenant: "one" }));
    expect(queue.add(picture("a1", 1, { tenant: "one" })).map(({ name }) => name)).toEqual(["e0"]);
  });

  test("counts bytes as well as pictures", () => {
    const queue = new FairQueue<Picture>(full);
    queue.add(picture("a0", 1, { numBytes: 900 }));
    queue.add(picture("b0", 1, { numBytes: 50 }));
    expect(queue.add(picture("c0", 1, { numBytes: 100 })).map(({ name }) => name)).toEqual(["a0"]);
    expect(queue.waitingBytes).toBe(150);
  });

  test("evicts nothing of a request that is alone", () => {
    const queue = new FairQueue<Picture>(full);
    for (const work of pictures("a", 9, 1)) expect(queue.add(work)).toEqual([]);
    expect(queue.numWaiting).toBe(9);
  });
});

interface Step {
  readonly request: string;
  readonly tenant: string;
  readonly cost: number;
  readonly action: "add" | "take" | "remove";
}

describe("any sequence of additions, takes and removals", () => {
  const steps: fc.Arbitrary<Step[]> = fc.array(
    fc.record({
      request: fc.constantFrom("a", "b", "c", "d"),
      tenant: fc.constantFrom("x", "y"),
      cost: fc.integer({ min: 1, max: 50 }),
      action: fc.constantFrom<Step["action"][]>("add", "add", "add", "take", "remove"),
    }),
    { maxLength: 200 },
  );

  /** The content of the queue after the steps, or null if it differs from a plain set. */
  function play(queue: FairQueue<Picture>, all: readonly Step[]): Set<Picture> | null {
    const waiting = new Set<Picture>();
    for (const [index, { request, tenant, cost, action }] of all.entries()) {
      const [oldest] = waiting;
      if (action === "add") {
        const work = { ...picture(`${request}${index}`, cost, { tenant }), request: requestOf(request + tenant) };
        if (queue.add(work).length > 0) return null;
        waiting.add(work);
      } else if (action === "remove" && oldest !== undefined) {
        queue.remove(oldest);
        waiting.delete(oldest);
      } else if (action === "take") {
        const work = queue.take();
        if (work === null ? waiting.size > 0 : !waiting.delete(work)) return null;
      }
      if (queue.numWaiting !== waiting.size) return null;
    }
    return waiting;
  }

  test("loses nothing and takes nothing twice", () => {
    fc.assert(
      fc.property(steps, (all) => {
        const queue = new FairQueue<Picture>(noLimits);
        const waiting = play(queue, all);
        expect(waiting).not.toBeNull();
        expect(takeNames(queue).sort()).toEqual(Array.from(waiting!, ({ name }) => name).sort());
      }),
    );
  });

  test("gives two busy tenants the same amount of work, within a few pictures", () => {
    fc.assert(
      fc.property(steps, (all) => {
        const queue = new FairQueue<Picture>(noLimits);
        const waiting = play(queue, all) ?? new Set();
        const hasWork = (tenant: string): boolean => [...waiting].some((work) => work.tenant === tenant);
        let ahead = 0;
        let furthest = 0;
        while (hasWork("x") && hasWork("y")) {
          const work = queue.take()!;
          waiting.delete(work);
          ahead += work.tenant === "x" ? work.cost : -work.cost;
          furthest = Math.max(furthest, Math.abs(ahead));
        }
        expect(furthest).toBeLessThanOrEqual(150);
      }),
    );
  });
});

describe("priority", () => {
  test("puts urgent pictures of a tenant first, and leaves a bounded part to the others", () => {
    const count = 3 * (MAX_OVERTAKING_WORK + 1);
    const queue = queueOf(...pictures("b", count, 10, { priority: 1000 }), ...pictures("a", count, 10));
    const names = takeNames(queue, count);
    const late = names.flatMap((name, index) => (name.startsWith("b") ? [index] : []));
    expect(late).toEqual([1, 2, 3].map((turn) => turn * (MAX_OVERTAKING_WORK + 1) - 1));
    expect(takeNames(queue)).toHaveLength(count);
  });

  test("gives a tenant nothing of another's part, and loses no picture", () => {
    const work = fc.record({
      tenant: fc.constantFrom("one", "two", "three"),
      request: fc.constantFrom("a", "b", "c"),
      priority: fc.constantFrom(0, 0, -5, 1, 1000),
    });
    const tenantOf = new Map<string, string>();
    let numReordered = 0;
    fc.assert(
      fc.property(fc.array(work, { maxLength: 60, size: "max" }), fc.integer({ min: 1, max: 3 }), (works, step) => {
        const orders = [false, true].map((hasPriority) => {
          const queue = new FairQueue<Picture>(noLimits);
          const names: string[] = [];
          works.forEach(({ tenant, request, priority }, index) => {
            const name = `${request}${tenant}${index}`;
            tenantOf.set(name, tenant);
            const owned = { ...picture(name, 10, { tenant, priority: hasPriority ? priority : 0 }) };
            queue.add({ ...owned, request: requestOf(`${tenant}${request}${hasPriority ? priority : 0}`) });
            if (index % step === 0) names.push(...takeNames(queue, 1));
          });
          names.push(...takeNames(queue));
          return names;
        });
        const [plain = [], ordered = []] = orders;
        expect(ordered.toSorted()).toEqual(plain.toSorted());
        // All pictures cost the same, so the order of tenants does not depend on the order within them.
        expect(ordered.map((name) => tenantOf.get(name))).toEqual(plain.map((name) => tenantOf.get(name)));
        if (ordered.join() !== plain.join()) numReordered += 1;
      }),
      { numRuns: 200 },
    );
    expect(numReordered).toBeGreaterThan(50);
  });
});
