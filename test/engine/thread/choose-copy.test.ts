import { expect, test } from "vitest";

import { canLoadLater, chooseCopy, needsAllCopies, PrefixRoutes } from "../../../engine/thread/choose-copy.ts";
import type { CopyLimits, RoutedRequest } from "../../../engine/thread/choose-copy.ts";

const limits: CopyLimits = { numCopies: 2, gathers: true, maxNumSequences: 64 };

interface Copy {
  readonly name: string;
  readonly numSequences: number;
  readonly kvCacheUsage: number;
}

/** Copies a, b and so on with these numbers of sequences. */
function copiesOf(...counts: readonly number[]): Copy[] {
  return counts.map((numSequences, index) => ({ name: "abcd"[index]!, numSequences, kvCacheUsage: 0 }));
}

function chosen(copies: readonly Copy[], overrides: Partial<CopyLimits> = {}): string {
  return chooseCopy(copies, null, { ...limits, ...overrides }).name;
}

test("little work goes to the busiest copy", () => {
  expect(chosen(copiesOf(0, 0))).toBe("a");
  expect(chosen(copiesOf(0, 1))).toBe("b");
  expect(chosen(copiesOf(7, 0))).toBe("a");
});

test("from four sequences for each copy on, work is divided", () => {
  expect(chosen(copiesOf(8, 0))).toBe("b");
  expect(chosen(copiesOf(5, 3))).toBe("b");
  expect(chosen(copiesOf(30, 31))).toBe("a");
  expect(chosen(copiesOf(15, 0, 0, 0), { numCopies: 4 })).toBe("a");
  expect(chosen(copiesOf(16, 0, 0, 0), { numCopies: 4 })).toBe("b");
});

test("copies that are not loaded yet count", () => {
  expect(needsAllCopies(copiesOf(7), limits)).toBe(false);
  expect(needsAllCopies(copiesOf(8), limits)).toBe(true);
  expect(needsAllCopies(copiesOf(8), { ...limits, numCopies: 4 })).toBe(false);
});

test("a copy without room does not get all work", () => {
  expect(chosen(copiesOf(2, 0), { maxNumSequences: 2 })).toBe("b");
  const full: Copy = { name: "full", numSequences: 2, kvCacheUsage: 0.6 };
  expect(chosen([full, ...copiesOf(0)])).toBe("a");
});

test("copies that have their own threads only share all work", () => {
  expect(chosen(copiesOf(1, 0), { gathers: false })).toBe("b");
});

test("with much work, a copy that knows the prompt may have two sequences more", () => {
  const copies = copiesOf(12, 10);
  const choose = (numTokens: number, list = copies): string =>
    chooseCopy(list, { numTokens, targets: [list[0]!] }, limits).name;
  expect(choose(64)).toBe("b");
  expect(choose(128)).toBe("b");
  expect(choose(256)).toBe("a");
  expect(choose(100_000, copiesOf(13, 10))).toBe("b");
  expect(choose(64, copiesOf(10, 10))).toBe("a");
});

test("with little work, a resting copy must know much of the prompt", () => {
  const copies = copiesOf(1, 0);
  const choose = (numTokens: number, targets: readonly Copy[] = [copies[1]!]): string =>
    chooseCopy(copies, { numTokens, targets }, limits).name;
  expect(choose(448)).toBe("a");
  expect(choose(512)).toBe("b");
  expect(choose(512, copies)).toBe("a");
  const resting = copiesOf(0, 0);
  expect(chooseCopy(resting, { numTokens: 64, targets: [resting[1]!] }, limits).name).toBe("b");
});

test("copies are loaded later where one can have enough sequences", () => {
  expect(canLoadLater(limits)).toBe(true);
  expect(canLoadLater({ ...limits, maxNumSequences: 8 })).toBe(true);
  expect(canLoadLater({ ...limits, maxNumSequences: 7 })).toBe(false);
  expect(canLoadLater({ ...limits, gathers: false })).toBe(false);
});

function request(promptTokenIds: readonly number[], others: Partial<RoutedRequest> = {}): RoutedRequest {
  return { promptTokenIds, images: [], cacheSalt: null, ...others };
}

function numbers(length: number, first = 0): number[] {
  return Array.from({ length }, (_, index) => first + index);
}

function image(mmHash: string, offset: number): RoutedRequest["images"][number] {
  return { mmHash, placeholder: { offset, length: 10, isEmbed: null }, tensors: new Map() };
}

test("the longest known beginning counts", () => {
  const routes = new PrefixRoutes<string>();
  const short = numbers(100);
  const long = [...short, ...numbers(100, 5000)];
  routes.add(routes.keysOf(request(short)), "first");
  expect(routes.find(routes.keysOf(request(long)))).toEqual({ numTokens: 64, targets: ["first"] });
  routes.add(routes.keysOf(request([...numbers(64), ...numbers(64, 9000)])), "second");
  routes.add(routes.keysOf(request(short)), "first");
  expect(routes.find(routes.keysOf(request(short)))).toEqual({ numTokens: 64, targets: ["first", "second"] });
  const other = [...numbers(64), ...numbers(200, 9000)];
  expect(routes.find(routes.keysOf(request(other)))).toEqual({ numTokens: 128, targets: ["second"] });
});

test("prompts that are short, or differ in their beginning, salt, adapter or pictures, have no route", () => {
  const routes = new PrefixRoutes<string>();
  const prompt = numbers(300);
  routes.add(routes.keysOf(request(prompt, { images: [image("a", 10)] })), "first");
  expect(routes.keysOf(request(numbers(63)))).toEqual([]);
  const others = [
    request(numbers(300, 1), { images: [image("a", 10)] }),
    request(prompt, { images: [image("a", 10)], cacheSalt: "salt" }),
    request(prompt, { images: [image("a", 10)], adapterId: 1 }),
    request(prompt, { images: [image("b", 10)] }),
    request(prompt),
  ];
  expect(others.map((other) => routes.find(routes.keysOf(other)))).toEqual(others.map(() => null));
  const longer = request(prompt, { images: [image("a", 10), image("c", 290)] });
  expect(routes.find(routes.keysOf(longer))).toEqual({ numTokens: 256, targets: ["first"] });
});

test("only the routes of a million tokens are kept", () => {
  const routes = new PrefixRoutes<number>();
  const keysOf = (index: number) => routes.keysOf(request(numbers(16_384, index * 20_000)));
  for (let index = 0; index < 65; index++) routes.add(keysOf(index), index);
  expect(routes.find(keysOf(0))).toBe(null);
  expect(routes.find(keysOf(1))?.targets).toEqual([1]);
  expect(routes.find(keysOf(64))?.targets).toEqual([64]);
});

test("keys of similar prompts differ", () => {
  const routes = new PrefixRoutes<string>();
  const keys = Array.from({ length: 100_000 }, (_, index) => {
    const [key] = routes.keysOf(request([index % 317, ...numbers(62), Math.floor(index / 317)]));
    return key;
  });
  expect(new Set(keys).size).toBe(keys.length);
});
