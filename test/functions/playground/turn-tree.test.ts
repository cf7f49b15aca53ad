import fc from "fast-check";
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

test("after any changes, every turn can be reached, parents come first, and undo restores the path", () => {
  const change = fc.record({ kind: fc.constantFrom("continue", "version", "show", "remove", "undo"), at: fc.nat(50) });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 40 }), (changes) => {
      const tree = new TurnTree();
      for (const [index, { kind, at }] of changes.entries()) {
        const turn = tree.turns[at % Math.max(1, tree.turns.length)];
        if (turn === undefined) tree.add(null, createQuestion(String(index)));
        else if (kind === "continue") tree.add(turn.id, createQuestion(String(index)));
        else if (kind === "version") tree.add(turn.parentId, createQuestion(String(index)));
        else if (kind === "show") tree.show(turn);
        else {
          const before = JSON.stringify([tree.turns, tree.path]);
          const undo = tree.remove(turn);
          if (kind === "undo") {
            undo();
            expect(JSON.stringify([tree.turns, tree.path])).toBe(before);
          }
        }
        const ids = tree.turns.map(({ id }) => id);
        for (const [position, { parentId }] of tree.turns.entries()) {
          expect(parentId === null || ids.indexOf(parentId) < position).toBe(true);
          if (parentId !== null) expect(ids).toContain(parentId);
        }
        for (const each of tree.turns) {
          expect(tree.versionsOf(each).filter(({ isShown }) => isShown)).toHaveLength(1);
        }
        if (tree.turns.length > 0) expect(tree.path).not.toEqual([]);
      }
    }),
  );
});
