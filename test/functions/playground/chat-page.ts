/** The page before a scripted engine, which gives the answers "Answer 1", "Answer 2" and so on. */
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { expect } from "vitest";

import type { Script } from "../../support/engine/scripted-engine.ts";
import { createTestApp, serveApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";
import { openPage } from "./browser.ts";
import type { OpenPage } from "./browser.ts";

export interface Chat extends AsyncDisposable {
  readonly page: Page;
  readonly url: string;
  /** The contents of the last request's messages: texts, or parts as JSON. */
  readonly lastMessages: () => string[];
  /** In a window of its own, with separate storage. */
  readonly openOther: () => Promise<OpenPage>;
}

export interface ChatOptions {
  readonly context?: BrowserContextOptions;
  readonly config?: TestAppOptions["config"];
  /** Of the first answers, in place of the plain ones. */
  readonly scripts?: readonly Script[];
}

/** Checks at the end that no script failed and that nothing was requested from elsewhere. */
export async function openChat(
  browser: Browser,
  { context, config = {}, scripts = [] }: ChatOptions = {},
): Promise<Chat> {
  let numAnswers = 0;
  const testApp = createTestApp({ script: () => scripts[numAnswers++] ?? [`Answer ${numAnswers}`], config });
  const served = await serveApp(testApp);
  const url = `${served.baseUrl}/playground`;
  const { page, complaints, foreignUrls, ...opened } = await openPage(browser, url, context);
  const keys = config.apiKeys ?? [];
  if (keys.length === 0) await waitUntilReady(page);
  return {
    page,
    url,
    openOther: () => openPage(browser, url, context),
    lastMessages() {
      const { prompt } = testApp.engine.requests.at(-1)!;
      if (prompt.kind !== "chat") throw new Error(`A prompt of the kind ${prompt.kind}.`);
      return prompt.messages.map(({ content }) => (typeof content === "string" ? content : JSON.stringify(content)));
    },
    async [Symbol.asyncDispose]() {
      await opened[Symbol.asyncDispose]();
      await served[Symbol.asyncDispose]();
      // The browser logs every request that lacks the key.
      const unexpected = complaints.filter((text) => keys.length === 0 || !text.includes("401"));
      expect({ complaints: unexpected, foreignUrls }).toEqual({ complaints: [], foreignUrls: [] });
    },
  };
}

export async function waitUntilReady(page: Page): Promise<void> {
  await page.locator("#state[data-state=ready]").waitFor();
}

export async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel("Question", { exact: true }).fill(question);
  await page.keyboard.press("Enter");
}

/** Asks "One?" and "Two?", and waits for the plain answers. */
export async function askTwo(page: Page): Promise<void> {
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  await ask(page, "Two?");
  await expectTurns(page, twoTurns);
}

/** The turns after `askTwo`. */
export const twoTurns = [
  ["One?", "Answer 1"],
  ["Two?", "Answer 2"],
] as const;

/** Waits until the page shows these questions with these answers, all complete. */
export async function expectTurns(page: Page, turns: readonly (readonly [string, string])[]): Promise<void> {
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

/** The names of the elements of a role in Chromium's accessibility tree, as screen readers get it. */
export async function readAccessibleNames(page: Page, role: string): Promise<unknown[]> {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send("Accessibility.getFullAXTree");
  await session.detach();
  return nodes.filter((node) => !node.ignored && node.role?.value === role).map(({ name }): unknown => name?.value);
}
