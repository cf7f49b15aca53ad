/** Answers that are regenerated, questions that are edited, and turns that are deleted, by keyboard and by name. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createTestApp, serveApp } from "../../support/test-app.ts";
import type { ServedApp, TestApp } from "../../support/test-app.ts";
import { launchBrowser, openPage } from "./browser.ts";
import type { OpenPage } from "./browser.ts";
import { readFocusedName } from "./in-page.js";

let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
});

afterAll(() => browser.close());

interface Chat extends AsyncDisposable {
  readonly page: Page;
  readonly testApp: TestApp;
  /** The texts of the last request's messages. */
  readonly lastMessages: () => string[];
}

/** A page whose server gives the answers 1, 2, 3 and so on. */
async function openChat(): Promise<Chat> {
  let numAnswers = 0;
  const testApp = createTestApp({ script: () => [`Answer ${++numAnswers}`] });
  const served: ServedApp = await serveApp(testApp);
  const opened: OpenPage = await openPage(browser, `${served.baseUrl}/playground`);
  await opened.page.locator("#state[data-state=ready]").waitFor();
  return {
    page: opened.page,
    testApp,
    lastMessages() {
      const { prompt } = testApp.engine.requests.at(-1)!;
      if (prompt.kind !== "chat") throw new Error(`A prompt of the kind ${prompt.kind}.`);
      return prompt.messages.map(({ content }) => (typeof content === "string" ? content : JSON.stringify(content)));
    },
    async [Symbol.asyncDispose]() {
      expect(opened.complaints).toEqual([]);
      await opened[Symbol.asyncDispose]();
      await served[Symbol.asyncDispose]();
    },
  };
}

async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel("Question", { exact: true }).fill(question);
  await page.keyboard.press("Enter");
}

async function expectTurns(page: Page, turns: readonly (readonly [string, string])[]): Promise<void> {
  await expect
    .poll(async () => {
      const shown = await page.locator(".turn:not(:has([aria-busy]))").all();
      return Promise.all(
        shown.map(async (turn) => [
          await turn.locator(".question-text").innerText(),
          await turn.locator(".answer-text").innerText(),
        ]),
      );
    })
    .toEqual(turns);
}

test("a regenerated answer is another version, and the keyboard steps between versions", async () => {
  await using chat = await openChat();
  const { page } = chat;
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  await ask(page, "Two?");
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 2"],
  ]);
  await page.getByRole("button", { name: "Regenerate answer 1" }).press("Enter");
  await expectTurns(page, [["One?", "Answer 3"]]);
  expect(chat.lastMessages()).toEqual(["One?"]);
  expect(await page.evaluate(readFocusedName)).toBe("question");

  const versions = page.getByRole("group", { name: "Version 2 of 2" });
  expect(await versions.innerText()).toMatch(/2\/2/);
  expect(await page.getByRole("button", { name: "Next version of turn 1" }).isDisabled()).toBe(true);
  await page.getByRole("button", { name: "Previous version of turn 1" }).press("Enter");
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 2"],
  ]);
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
  await using chat = await openChat();
  const { page } = chat;
  const question = page.getByLabel("Question", { exact: true });
  await ask(page, "One?");
  await ask(page, "Two?");
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 2"],
  ]);
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
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 2"],
  ]);
});

test("a deleted turn is not sent any more, and Undo brings it back", async () => {
  await using chat = await openChat();
  const { page } = chat;
  for (const question of ["One?", "Two?"]) await ask(page, question);
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 2"],
  ]);
  await page.getByRole("button", { name: "Delete turn 1" }).press("Enter");
  await expectTurns(page, [["Two?", "Answer 2"]]);
  expect(await page.evaluate(readFocusedName)).toBe("Undo");
  await page.keyboard.press("Enter");
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 2"],
  ]);
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
