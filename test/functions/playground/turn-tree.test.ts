import * as fc from "fast-check";
import { expect, test } from "vitest";

import { TurnTree } from "../../../functions/playground/turn-tree.js";

function createQuestion(question: string) {
  return { question, pictures: [] };
}

function read(tree: TurnTree): string[] {
  return tree.path.map(({ question }) => question.question);
}

test("an edited question is a version beside the first one, each with the turns after it", () => {
  const tree = new TurnTree();
  const first = tree.add(null, createQuestion("a"));
  const second = tree.add(first.id, createQuestion("b"));
  tree.add(second.id, createQuestion("c"));
  const edited = tree.add(second.parentId, createQuestion("B"));
  expect(read(tree)).toEqual(["a", "B"]);
  expect(tree.versionsOf(edited)).toEqual([second, edited]);
  tree.show(second);
  expect(read(tree)).toEqual(["a", "b", "c"]);
});

test("the turns after a removed one stay, and undoing brings it back", () => {
  const tree = new TurnTree();
  const first = tree.add(null, createQuestion("a"));
  const second = tree.add(first.id, createQuestion("b"));
  tree.add(second.id, createQuestion("c"));
  const undo = tree.remove(second);
  expect(read(tree)).toEqual(["a", "c"]);
  undo();
  expect(read(tree)).toEqual(["a", "b", "c"]);
});

test("removing a version shows the one before it", () => {
  const tree = new TurnTree();
  const first = tree.add(null, createQuestion("a"));
  const second = tree.add(null, createQuestion("b"));
  tree.remove(second);
  expect(read(tree)).toEqual(["a"]);
  tree.remove(first);
  expect(read(tree)).toEqual([]);
});

test("only answered questions of the turn's own past become its history", () => {
  const tree = new TurnTree();
  const first = tree.add(null, createQuestion("a"));
  first.answer = "A";
  const failed = tree.add(first.id, createQuestion("b"));
  const third = tree.add(failed.id, createQuestion("c"));
  third.answer = "C";
  const other = tree.add(first.id, createQuestion("d"));
  other.answer = "D";
  expect(tree.historyTo(third.id).map(({ answer }) => answer)).toEqual(["A", "C"]);
});

const changes = fc.array(
  fc.record({ kind: fc.constantFrom("continue", "version", "show", "remove"), at: fc.nat(50) }),
  { maxLength: 40 },
);

function change(tree: TurnTree, kind: string, at: number): void {
  const turn = tree.turns[at % Math.max(1, tree.turns.length)];
  if (turn === undefined) tree.add(null, createQuestion("a"));
  else if (kind === "continue") tree.add(turn.id, createQuestion("b"));
  else if (kind === "version") tree.add(turn.parentId, createQuestion("c"));
  else if (kind === "show") tree.show(turn);
  else tree.remove(turn);
}

test("whatever changes, parents come first, and each turn has one shown version", () => {
  fc.assert(
    fc.property(changes, (all) => {
      const tree = new TurnTree();
      for (const { kind, at } of all) {
        change(tree, kind, at);
        const ids = [null, ...tree.turns.map(({ id }) => id)];
        const parents = tree.turns.map(({ parentId }) => ids.indexOf(parentId));
        expect(parents.every((parent, index) => parent !== -1 && parent <= index)).toBe(true);
        const numShown = tree.turns.map((turn) => tree.versionsOf(turn).filter(({ isShown }) => isShown).length);
        expect(new Set(numShown).difference(new Set([1]))).toEqual(new Set());
        expect(tree.path.length > 0).toBe(tree.turns.length > 0);
      }
    }),
  );
});

test("whatever came before, undoing a removal restores all turns", () => {
  fc.assert(
    fc.property(changes, fc.nat(50), (all, at) => {
      const tree = new TurnTree();
      tree.add(null, createQuestion("a"));
      for (const { kind, at } of all) change(tree, kind, at);
      const turn = tree.turns[at % Math.max(1, tree.turns.length)] ?? tree.add(null, createQuestion("a"));
      const before = JSON.stringify([tree.turns, tree.path]);
      const undo = tree.remove(turn);
      expect(tree.turns).not.toContain(turn);
      undo();
      expect(JSON.stringify([tree.turns, tree.path])).toBe(before);
    }),
  );
});
