/** Answers that are regenerated, questions that are edited, and turns that are deleted, by keyboard and by name. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launchBrowser } from "./browser.ts";
import { ask, askTwo, expectTurns, openChat, twoTurns } from "./chat-page.ts";
import { readFocusedName } from "./in-page.js";

let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
});

afterAll(() => browser.close());

test("a regenerated answer is another version, and the keyboard steps between versions", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await askTwo(page);
  await page.getByRole("button", { name: "Regenerate answer 1" }).press("Enter");
  await expectTurns(page, [["One?", "Answer 3"]]);
  expect(chat.lastMessages()).toEqual(["One?"]);
  expect(await page.evaluate(readFocusedName)).toBe("question");

  const versions = page.getByRole("group", { name: "Version 2 of 2" });
  expect(await versions.innerText()).toMatch(/2\/2/);
  expect(await page.getByRole("button", { name: "Next version of turn 1" }).isDisabled()).toBe(true);
  await page.getByRole("button", { name: "Previous version of turn 1" }).press("Enter");
  await expectTurns(page, twoTurns);
  // The way back is the only one left.
  expect(await page.evaluate(readFocusedName)).toBe("Next version of turn 1");
  await page.keyboard.press("Enter");
  await expectTurns(page, [["One?", "Answer 3"]]);
  expect(await page.evaluate(readFocusedName)).toBe("Previous version of turn 1");

  await ask(page, "Three?");
  await expectTurns(page, [
    ["One?", "Answer 3"],
    ["Three?", "Answer 4"],
  ]);
  expect(chat.lastMessages()).toEqual(["One?", "Answer 3", "Three?"]);
});

test("an earlier question is edited into another version; Escape gives up and restores the draft", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  const question = page.getByLabel("Question", { exact: true });
  await askTwo(page);
  await question.fill("A draft");
  await page.getByRole("button", { name: "Edit question 1" }).press("Enter");
  expect(await page.evaluate(readFocusedName)).toBe("question");
  expect(await question.inputValue()).toBe("One?");
  await page.getByText("You are editing an earlier question.").waitFor();
  await page.keyboard.press("Escape");
  expect(await question.inputValue()).toBe("A draft");
  expect(await page.evaluate(readFocusedName)).toBe("Edit question 1");

  await page.keyboard.press("Enter");
  await question.fill("One, please?");
  await page.keyboard.press("Enter");
  await expectTurns(page, [["One, please?", "Answer 3"]]);
  expect(chat.lastMessages()).toEqual(["One, please?"]);
  expect(await question.inputValue()).toBe("A draft");
  expect(await page.getByText("You are editing an earlier question.").isVisible()).toBe(false);
  await page.getByRole("button", { name: "Previous version of turn 1" }).click();
  await expectTurns(page, twoTurns);
});

test("a deleted turn is not sent any more, and Undo brings it back", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await askTwo(page);
  await page.getByRole("button", { name: "Delete turn 1" }).press("Enter");
  await expectTurns(page, [["Two?", "Answer 2"]]);
  expect(await page.evaluate(readFocusedName)).toBe("Undo");
  await page.keyboard.press("Enter");
  await expectTurns(page, twoTurns);
  expect(await page.evaluate(readFocusedName)).toBe("Delete turn 1");
  await page.keyboard.press("Enter");
  await ask(page, "Three?");
  await expectTurns(page, [
    ["Two?", "Answer 2"],
    ["Three?", "Answer 3"],
  ]);
  expect(chat.lastMessages()).toEqual(["Two?", "Answer 2", "Three?"]);
  expect(await page.getByRole("button", { name: "Undo" }).isVisible()).toBe(false);
});
