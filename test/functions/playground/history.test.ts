/** The bounds of the saved conversations, over the memory that stands in for IndexedDB where there is none. */
import { afterAll, beforeEach, expect, test } from "vitest";

import { openDatabase } from "../../../functions/playground/database.js";
import type { Database } from "../../../functions/playground/database.js";
import { History, HistoryError } from "../../../functions/playground/history.js";
import { TurnTree } from "../../../functions/playground/turn-tree.js";

const channel = new BroadcastChannel("test-history");
let evicted: string[];

beforeEach(() => {
  evicted = [];
});

afterAll(() => channel.close());

function createHistory(database: Database, limits: { maxConversations?: number; maxBytes?: number }): History {
  return new History({
    database,
    limits: { maxConversations: 10, maxBytes: 1000, ...limits },
    channel,
    on: { change() {}, otherTab() {}, evicted: (titles) => void evicted.push(...titles) },
  });
}

/** With a picture of 40 bytes that differs by its seed. */
function createTree(title: string, seed: number): TurnTree {
  const tree = new TurnTree(title);
  const url = `data:image/png;base64,${Buffer.alloc(40, seed).toString("base64")}`;
  tree.add(null, { question: title, pictures: [{ name: "a.png", url }] });
  return tree;
}

function titlesOf(history: History): string[] {
  return history.records.map(({ title }) => title).toSorted();
}

test("pictures count once towards the bytes, and the oldest conversation goes with its own", async () => {
  const database = await openDatabase();
  expect(database.isLasting).toBe(false);
  const history = createHistory(database, { maxBytes: 100 });
  await history.save(createTree("a", 1));
  const [former] = history.records;
  for (const [title, seed] of [
    ["b", 1],
    ["c", 1],
    ["d", 2],
  ] as const)
    await history.save(createTree(title, seed));
  expect([titlesOf(history), evicted]).toEqual([["a", "b", "c", "d"], []]);
  const record = history.records.find(({ title }) => title === "d")!;
  await history.save(createTree("e", 3));
  expect([titlesOf(history), evicted]).toEqual([
    ["d", "e"],
    ["a", "b", "c"],
  ]);
  expect((await history.readPictures(former!)).size).toBe(0);
  expect((await history.readPictures(record)).size).toBe(1);
});

test("a conversation that does not fit at all is refused, and the others stay", async () => {
  const history = createHistory(await openDatabase(), { maxBytes: 100 });
  await history.save(createTree("a", 1));
  await history.change("a", { isPinned: true });
  const large = createTree("b", 2);
  large.turns[0]!.answer = "x".repeat(100);
  await expect(history.save(large)).rejects.toThrow(
    new HistoryError(
      "This conversation is not saved: there would be 0.0 MB, and this browser keeps at most 0.0 MB. Delete or unpin some.",
    ),
  );
  expect(titlesOf(history)).toEqual(["a"]);
});

test("an import never pushes others out", async () => {
  const database = await openDatabase();
  const history = createHistory(database, { maxConversations: 2 });
  await history.save(createTree("a", 1));
  await history.save(createTree("b", 1));
  const [record] = history.records;
  await expect(history.add([{ ...record!, id: "c" }], new Map())).rejects.toThrow(
    "There is no room: there would be 3 conversations, and this browser keeps at most 2. Delete some first.",
  );
  expect([titlesOf(history), evicted]).toEqual([["a", "b"], []]);
});

test("a renamed conversation keeps its title and pin while it goes on, and after all turns were deleted", async () => {
  const history = createHistory(await openDatabase(), {});
  const tree = createTree("a", 1);
  await history.save(tree);
  await history.change("a", { title: "  A\n title ", isPinned: true });
  tree.add(tree.turns[0]!.id, { question: "b", pictures: [] });
  await history.save(tree);
  expect(history.records).toMatchObject([{ title: "A title", isPinned: true, turns: [{}, {}] }]);
  const undo = [tree.remove(tree.turns[1]!), tree.remove(tree.turns[0]!)];
  await history.save(tree);
  expect(history.records).toEqual([]);
  undo[1]!();
  await history.save(tree);
  expect(history.records).toMatchObject([{ title: "A title", isPinned: true, turns: [{}] }]);
});

test("changes at the same time are made one after the other", async () => {
  const history = createHistory(await openDatabase(), {});
  await Promise.all(["a", "b", "c", "d"].map((title, seed) => history.save(createTree(title, seed))));
  expect(titlesOf(history)).toEqual(["a", "b", "c", "d"]);
});

test("reports a browser that refuses to save, and the page still works", async () => {
  const database = await openDatabase();
  const history = createHistory(
    { ...database, update: () => Promise.reject(new DOMException("The quota is reached.", "QuotaExceededError")) },
    {},
  );
  await expect(history.save(createTree("a", 1))).rejects.toThrow(
    new HistoryError("The browser does not save this conversation: QuotaExceededError: The quota is reached."),
  );
  expect(history.records).toEqual([]);
});
