/** The variable `loop` of each iteration. */
import { areEqual, Callable, JinjaError, Namespace, Undefined } from "./values.ts";
import type { Value } from "./values.ts";

/** Calls of `changed` compare with the iteration before, so the loop's iterations share what they saw. */
export function createLoop(
  items: readonly Value[],
  depth: number,
  recurse: Callable,
): { readonly at: (index: number) => Namespace } {
  let lastSeen: readonly Value[] | null = null;
  const changed = new Callable("changed", (values) => {
    const isSame = lastSeen !== null && areEqual(lastSeen, values);
    lastSeen = values;
    return !isSame;
  });
  const { length } = items;
  const at = (index: number): Namespace => {
    const cycle = new Callable("cycle", (values) => {
      if (values.length === 0) throw new JinjaError("no items for cycling given");
      return values[index % values.length]!;
    });
    const members = new Map<string, Value>([
      ["index", index + 1],
      ["index0", index],
      ["revindex", length - index],
      ["revindex0", length - index - 1],
      ["first", index === 0],
      ["last", index === length - 1],
      ["length", length],
      ["previtem", index > 0 ? items[index - 1]! : new Undefined("'loop.previtem'")],
      ["nextitem", index + 1 < length ? items[index + 1]! : new Undefined("'loop.nextitem'")],
      ["depth", depth],
      ["depth0", depth - 1],
      ["cycle", cycle],
      ["changed", changed],
    ]);
    return new Namespace(members, recurse);
  };
  return { at };
}
