import { expect, test } from "vitest";

import { PrefixRoutes } from "../../../engine/thread/prefix-routes.ts";
import type { RoutedRequest } from "../../../engine/thread/prefix-routes.ts";

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
