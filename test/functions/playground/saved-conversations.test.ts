/** Conversations that the browser keeps: after a reload, in the list, within the bounds. */
import { readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { hang } from "../../support/engine/scripted-engine.ts";
import { launchBrowser } from "./browser.ts";
import { ask, expectTurns, openChat, twoTurns, readAccessibleNames, waitUntilReady } from "./chat-page.ts";
import {
  giveFile,
  measureOverhang,
  readFocusedName,
  readStorage,
  refuseStorage,
  storeConversations,
} from "./in-page.js";

const scene = await readFile(new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url));

let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
});

afterAll(() => browser.close());

async function giveScene(page: Page): Promise<void> {
  const file = { name: "scene.png", type: "image/png", base64: scene.toString("base64") };
  await page.evaluate(giveFile, { how: "drop" as const, ...file });
  await page.locator("#tray img").waitFor();
}

async function readTitles(page: Page): Promise<string[]> {
  return page.locator(".history-open").allInnerTexts();
}

test("a conversation is there after a reload, with its pictures and versions, and continues", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await giveScene(page);
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  await page.getByRole("button", { name: "Regenerate answer 1" }).click();
  await expectTurns(page, [["One?", "Answer 2"]]);
  await page.getByRole("button", { name: "Previous version of turn 1" }).click();
  await expectTurns(page, [["One?", "Answer 1"]]);
  await expect
    .poll(async () => (await page.evaluate(readStorage)).conversations)
    .toMatch(/Answer 1.*"isShown":true.*Answer 2/);

  await page.reload();
  await waitUntilReady(page);
  await expectTurns(page, [["One?", "Answer 1"]]);
  // Nothing is news to a screen reader.
  expect(await page.locator("#announcer").textContent()).toBe("");
  expect(await page.getByRole("alert").filter({ hasText: /./ }).count()).toBe(0);
  const url = `data:image/png;base64,${scene.toString("base64")}`;
  expect(await page.locator(".question-pictures img").getAttribute("src")).toBe(url);
  await ask(page, "Two?");
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 3"],
  ]);
  const [first, ...others] = chat.lastMessages();
  expect(first).toContain(url);
  expect(others).toEqual(["Answer 1", "Two?"]);
  await page.getByRole("button", { name: "Next version of turn 1" }).click();
  await expectTurns(page, [["One?", "Answer 2"]]);
});

test("each picture is stored once, and as long as a conversation has it", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  const pictures = async () => (await page.evaluate(readStorage)).pictures;
  for (const question of ["One?", "Two?"]) {
    await giveScene(page);
    await ask(page, question);
    await page.getByRole("button", { name: "New" }).click();
  }
  await expect.poll(() => readTitles(page)).toEqual(["Two?", "One?"]);
  expect(await pictures()).toEqual([`image/png of ${scene.length} bytes`]);
  for (const title of ["Two?", "One?"]) {
    expect(await pictures()).toHaveLength(1);
    await page.getByRole("button", { name: title, exact: true }).press("Delete");
    await page.getByText(`“${title}” is deleted.`).first().waitFor();
  }
  expect(await pictures()).toEqual([]);
  await page.getByRole("button", { name: "Undo" }).press("Enter");
  await expect.poll(() => readTitles(page)).toEqual(["One?"]);
  expect(await page.evaluate(readFocusedName)).toBe("One?");
  await page.keyboard.press("Enter");
  await expect.poll(() => page.locator(".question-pictures img").count()).toBe(1);
});

test("a conversation that is deleted while it is answered stays deleted", async () => {
  await using chat = await openChat(browser, { scripts: [["Answer", hang]] });
  const { page } = chat;
  await ask(page, "One?");
  await page.getByText("Answer").first().waitFor();
  await page.getByRole("button", { name: "Delete One?" }).press("Enter");
  await expect.poll(() => readTitles(page)).toEqual([]);
  await page.getByRole("heading", { name: "Ask about a picture" }).waitFor();
  await ask(page, "Two?");
  await expectTurns(page, [["Two?", "Answer 2"]]);
  await expect.poll(() => readTitles(page)).toEqual(["Two?"]);
  await page.reload();
  await waitUntilReady(page);
  expect(await readTitles(page)).toEqual(["Two?"]);
});

test("a question whose answer the page left is there after a reload, and can be asked again", async () => {
  await using chat = await openChat(browser, { scripts: [["Answer", hang]] });
  const { page } = chat;
  await ask(page, "One?");
  await page.getByText("Answer").first().waitFor();
  await expect.poll(async () => (await page.evaluate(readStorage)).conversations).toContain("One?");
  await page.reload();
  await waitUntilReady(page);
  await page.getByText("This question has no answer.").waitFor();
  expect(await page.getByRole("alert").filter({ hasText: /./ }).count()).toBe(0);
  await page.getByRole("button", { name: "Try again" }).click();
  await expectTurns(page, [["One?", "Answer 2"]]);
});

test("the list can be opened, renamed, pinned and searched with only the keyboard", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  for (const [index, question] of ["One?", "Two?", "Three?"].entries()) {
    await page.getByRole("button", { name: "New" }).press("Enter");
    await ask(page, question);
    await expectTurns(page, [[question, `Answer ${index + 1}`]]);
  }
  await expect.poll(() => readTitles(page)).toEqual(["Three?", "Two?", "One?"]);
  expect(await page.locator("#history").ariaSnapshot()).toContain('button "Three?"');
  const focused = async () => page.evaluate(readFocusedName);

  await page.getByRole("searchbox", { name: "Search conversations" }).focus();
  await page.keyboard.press("Tab");
  expect(await focused()).toBe("Three?");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expectTurns(page, [["One?", "Answer 1"]]);
  expect(await focused()).toBe("question");
  const open = page.getByRole("button", { name: "One?", exact: true });
  expect(await open.getAttribute("aria-current")).toBe("true");
  await page.goBack();
  await expectTurns(page, [["Three?", "Answer 3"]]);

  await open.focus();
  await page.keyboard.press("F2");
  expect(await focused()).toBe("New title of One?");
  await page.keyboard.type("First");
  await page.keyboard.press("Escape");
  expect(await focused()).toBe("One?");
  await page.keyboard.press("F2");
  await page.keyboard.type("First");
  await page.keyboard.press("Enter");
  await expect.poll(() => readTitles(page)).toEqual(["Three?", "Two?", "First"]);
  expect(await focused()).toBe("First");
  await page.keyboard.press("Tab");
  expect(await focused()).toBe("Pin First");
  await page.keyboard.press("Enter");
  await expect.poll(() => readTitles(page)).toEqual(["First", "Three?", "Two?"]);
  expect(await page.getByRole("button", { name: "Pin First", pressed: true }).count()).toBe(1);
  expect(await focused()).toBe("Pin First");

  const search = page.getByRole("searchbox", { name: "Search conversations" });
  await search.fill("answer 2");
  expect(await readTitles(page)).toEqual(["Two?"]);
  await search.fill("nowhere");
  await page.getByText("No conversation contains these words.").waitFor();
  await search.fill("");
  await page.reload();
  await waitUntilReady(page);
  expect(await readTitles(page)).toEqual(["First", "Three?", "Two?"]);
});

test("the oldest conversation without a pin goes when there are too many, and the page says so", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await page.evaluate(storeConversations, { numConversations: 200, numPinned: 1 });
  await page.reload();
  await waitUntilReady(page);
  expect((await readTitles(page)).length).toBe(200);
  await ask(page, "One more?");
  await page.getByText("Deleted as the oldest: “Old 1”.").first().waitFor();
  const titles = await readTitles(page);
  expect([titles.length, titles[0], titles[1], titles.at(-1)]).toEqual([200, "Old 0", "One more?", "Old 2"]);

  await page.getByRole("button", { name: "New" }).click();
  await page.evaluate(storeConversations, { numConversations: 200, numPinned: 200 });
  await page.reload();
  await waitUntilReady(page);
  await ask(page, "And another?");
  await page
    .getByText(/is not saved: there would be 201 conversations, and this browser keeps at most 200/)
    .first()
    .waitFor();
  await expect.poll(() => page.locator(".answer-text").innerText()).toMatch(/^Answer/);
  expect((await readTitles(page)).length).toBe(200);
});

test("without storage, conversations last as long as the page, and it says so", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await page.getByText("Conversations stay in this browser.").waitFor();
  await page.addInitScript(refuseStorage);
  await page.reload();
  await waitUntilReady(page);
  await page.getByText("This browser keeps nothing for this page.").waitFor();
  await giveScene(page);
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  await page.getByRole("button", { name: "New" }).click();
  await page.getByRole("button", { name: "One?", exact: true }).click();
  await expectTurns(page, [["One?", "Answer 1"]]);
  expect(await page.locator(".question-pictures img").count()).toBe(1);
});

test("each conversation keeps its model, and a new one begins with the last choice", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  const asked: string[] = [];
  page.on("request", (request) => {
    if (request.method() === "POST") asked.push((request.postDataJSON() as { readonly model: string }).model);
  });
  const model = page.getByLabel("Model");
  await model.selectOption("tiny-alias");
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  await page.getByRole("button", { name: "New" }).click();
  expect(await model.inputValue()).toBe("tiny-alias");
  await model.selectOption("tiny");
  await ask(page, "Two?");
  await expectTurns(page, [["Two?", "Answer 2"]]);
  await page.getByRole("button", { name: "One?", exact: true }).click();
  await expectTurns(page, [["One?", "Answer 1"]]);
  await page.reload();
  await waitUntilReady(page);
  expect(await model.inputValue()).toBe("tiny-alias");
  await ask(page, "Three?");
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Three?", "Answer 3"],
  ]);
  expect(asked).toEqual(["tiny-alias", "tiny", "tiny-alias"]);
});

test("two tabs show the same conversations", async () => {
  await using chat = await openChat(browser);
  const { page, url } = chat;
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  const other = await page.context().newPage();
  await other.goto(`${url}${new URL(page.url()).hash}`);
  await waitUntilReady(other);
  await expectTurns(other, [["One?", "Answer 1"]]);
  await ask(other, "Two?");
  await expectTurns(page, twoTurns);
  await other.getByRole("button", { name: "New" }).click();
  await ask(other, "Three?");
  await expect.poll(() => readTitles(page)).toEqual(["Three?", "One?"]);
});

test("on a narrow screen, the list is a drawer that takes the keyboard and gives it back", async () => {
  await using chat = await openChat(browser, {
    context: { viewport: { width: 360, height: 740 }, colorScheme: "dark" },
  });
  const { page } = chat;
  const focused = async () => page.evaluate(readFocusedName);
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  await page.getByRole("button", { name: "Regenerate answer 1" }).click();
  await expectTurns(page, [["One?", "Answer 2"]]);
  await page.getByRole("button", { name: "Edit question 1" }).click();
  expect(await page.evaluate(measureOverhang)).toBe(0);
  const toggle = page.getByRole("button", { name: "Conversations", exact: true });
  expect(await toggle.getAttribute("aria-expanded")).toBe("false");
  expect(await page.getByRole("complementary", { name: "Conversations" }).count()).toBe(0);

  await toggle.press("Enter");
  expect(await focused()).toBe("Close conversations");
  expect(await page.evaluate(measureOverhang)).toBe(0);
  // The covered page is out of the accessibility tree.
  expect(await readAccessibleNames(page, "textbox")).toEqual([]);
  await page.getByRole("button", { name: "Delete One?" }).press("Enter");
  await page.getByRole("button", { name: "Undo" }).waitFor();
  expect(await focused()).toBe("Undo");
  expect(await page.evaluate(measureOverhang)).toBe(0);
  await page.keyboard.press("Enter");
  await expect.poll(focused).toBe("One?");
  await page.keyboard.press("Escape");
  expect(await focused()).toBe("Conversations");
  expect(await readAccessibleNames(page, "textbox")).toEqual(["Question"]);

  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "One?", exact: true }).press("Enter");
  await expectTurns(page, [["One?", "Answer 2"]]);
  expect(await page.getByRole("complementary", { name: "Conversations" }).count()).toBe(0);
  expect(await focused()).toBe("question");
});

test("the accessibility tree has names for the list, the turn and its versions", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  await page.getByRole("button", { name: "Regenerate answer 1" }).click();
  await expectTurns(page, [["One?", "Answer 2"]]);
  await page.getByRole("button", { name: "One?", exact: true }).waitFor();
  expect(await page.locator("#history").ariaSnapshot()).toBe(`\
- complementary "Conversations":
  - heading "Conversations" [level=2]
  - button "Close conversations"
  - searchbox "Search conversations"
  - list "Conversations":
    - listitem:
      - button "One?"
      - button "Pin One?"
      - button "Rename One?"
      - button "Export One?"
      - button "Delete One?"
  - button "Import"
  - button "Export all"
  - paragraph: Conversations stay in this browser.`);
  const turn = await page.getByRole("article", { name: "Turn 1" }).ariaSnapshot();
  expect(turn).toContain(`\
  - group "Version 2 of 2":
    - button "Previous version of turn 1": ‹
    - text: 2/2
    - button "Next version of turn 1" [disabled]: ›
  - button "Regenerate answer 1": Regenerate
  - button "Edit question 1": Edit
  - button "Delete turn 1": Delete
  - button "Code of request 1": Code`);
});
