/** The page while a service loads, requires a key or fails. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { Script } from "../../support/engine/scripted-engine.ts";
import { thinkingFormats } from "../../support/requests/thinking-formats.ts";
import { createTestApp, serveApp } from "../../support/service/test-app.ts";
import { launchBrowser, openPage } from "./browser.ts";
import { ask, expectTurns, waitUntilReady } from "./chat-page.ts";

let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
});

afterAll(() => browser.close());

test("the page waits for a model that is loading, then asks", async () => {
  const testApp = createTestApp();
  testApp.engine.state = "loading";
  await using served = await serveApp(testApp);
  await using opened = await openPage(browser, `${served.baseUrl}/playground`);
  const { page, complaints } = opened;
  await page.getByText("Model is loading").waitFor();
  const send = page.getByRole("button", { name: "Ask" });
  expect(await send.isDisabled()).toBe(true);
  expect(await page.locator("#model").isVisible()).toBe(false);
  await page.getByLabel("Question", { exact: true }).fill("Hello?");
  await page.keyboard.press("Enter");
  expect(await page.locator("#composer-problem").innerText()).toMatch(/^Model is loading\. /);

  testApp.engine.state = "ready";
  await page.locator("#state[data-state=ready]").waitFor();
  await page.locator("#model").waitFor();
  await send.click();
  await expect.poll(() => page.locator(".answer-text").innerText()).toBe("Hello.");
  expect(complaints).toEqual([]);
});

test("a model without image support is asked without pictures", async () => {
  const testApp = createTestApp();
  const modelInfo = { ...testApp.engine.modelInfo, acceptsImages: false, acceptsVideos: false };
  Object.assign(testApp.engine, { modelInfo });
  await using served = await serveApp(testApp);
  await using opened = await openPage(browser, `${served.baseUrl}/playground`);
  const { page } = opened;
  await page.getByRole("heading", { name: "Ask something" }).waitFor();
  expect(await page.locator(".sample:visible").count()).toBe(0);
  expect(await page.getByRole("button", { name: "Add picture" }).isVisible()).toBe(false);
});

test("a key is requested, kept for the tab, sent with every question and never shown in code", async () => {
  await using served = await serveApp(createTestApp({ config: { apiKeys: ["secret-key"] } }));
  await using opened = await openPage(browser, `${served.baseUrl}/playground`);
  const { page } = opened;
  const field = page.getByLabel("This server requires an API key.");
  await field.fill("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("The API key is not valid for this service.").waitFor();
  // As word processors write quotation marks.
  await field.fill("“secret-key”");
  await page.keyboard.press("Enter");
  await page.getByText("A key cannot contain “: HTTP headers have no such character.").waitFor();
  await field.fill("secret-key");
  await page.getByRole("button", { name: "Use key" }).click();
  await page.locator("#state[data-state=ready]").waitFor();
  expect(await field.isVisible()).toBe(false);

  await page.reload();
  await page.locator("#state[data-state=ready]").waitFor();
  await page.getByLabel("Question", { exact: true }).fill("Hello?");
  await page.keyboard.press("Enter");
  await expect.poll(() => page.locator(".answer-text").innerText()).toBe("Hello.");
  await page.locator(".figures").getByRole("button", { name: "Code" }).click();
  const dialog = page.getByRole("dialog");
  for (const [kind, reference] of [
    ["curl", "Bearer $API_KEY"],
    ["openai", "process.env.API_KEY"],
  ]) {
    await dialog.getByRole("button", { name: kind! }).click();
    const code = await dialog.locator("code").innerText();
    expect(code).toContain(reference);
    expect(code).not.toContain("secret-key");
  }
});

test("thinking is shown apart from the answer, and not sent again", async () => {
  const script: Script = [{ text: "<think>", reasoningStart: "before" }, "Two <b>greetings</b>.", "</think>", "Hello."];
  const testApp = createTestApp({ script, config: { outputFormats: thinkingFormats } });
  await using served = await serveApp(testApp);
  await using opened = await openPage(browser, `${served.baseUrl}/playground`);
  const { page, complaints } = opened;
  await waitUntilReady(page);
  await ask(page, "Hello?");
  await expectTurns(page, [["Hello?", "Hello."]]);
  const thinking = page.locator(".thinking");
  expect(await thinking.locator("p").isVisible()).toBe(false);
  await thinking.getByText("Thinking").click();
  expect(await thinking.locator("p").innerText()).toBe("Two <b>greetings</b>.");

  await ask(page, "Again?");
  await expectTurns(page, [
    ["Hello?", "Hello."],
    ["Again?", "Hello."],
  ]);
  expect(JSON.stringify(testApp.engine.requests.at(-1)!.prompt)).not.toContain("greetings");
  expect(complaints).toEqual([]);
});

test("an answer without thinking shows none", async () => {
  await using served = await serveApp(createTestApp());
  await using opened = await openPage(browser, `${served.baseUrl}/playground`);
  await waitUntilReady(opened.page);
  await ask(opened.page, "Hello?");
  await expectTurns(opened.page, [["Hello?", "Hello."]]);
  expect(await opened.page.locator(".thinking").isVisible()).toBe(false);
});

test("an answer that fails midway keeps its text and shows the reason", async () => {
  const refusal = new EngineError("logits_processor_failed", "steering:Target failed: no such token.");
  let isBroken = true;
  const testApp = createTestApp({ script: () => (isBroken ? ["Hel", refusal] : ["Hello", "."]) });
  await using served = await serveApp(testApp);
  await using opened = await openPage(browser, `${served.baseUrl}/playground`);
  const { page } = opened;
  await page.locator("#state[data-state=ready]").waitFor();
  await page.getByLabel("Question", { exact: true }).fill("Hello?");
  await page.keyboard.press("Enter");
  await page.getByText("steering:Target failed: no such token.").waitFor();
  expect(await page.locator(".answer-text").innerText()).toBe("Hel");
  isBroken = false;
  await page.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => page.locator(".answer-text").innerText()).toBe("Hello.");
});

test("a server that is down is reported, and found again", async () => {
  const testApp = createTestApp();
  await using served = await serveApp(testApp);
  await using opened = await openPage(browser, `${served.baseUrl}/playground`);
  const { page } = opened;
  await page.locator("#state[data-state=ready]").waitFor();
  await page.context().setOffline(true);
  await page.getByLabel("Question", { exact: true }).fill("Hello?");
  await page.keyboard.press("Enter");
  await page.getByText("The server is unreachable.").waitFor();
  await page.locator("#state[data-state=unreachable]").waitFor();
  await page.context().setOffline(false);
  await page.locator("#state[data-state=ready]").waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => page.locator(".answer-text").innerText()).toBe("Hello.");
});
