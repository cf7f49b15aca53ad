/** Export and import of conversations, through the browser's own downloads and file choosers. */
import { readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import sharp from "sharp";
import { afterAll, beforeAll, expect, test } from "vitest";

import { launchBrowser } from "./browser.ts";
import { ask, askTwo, expectTurns, openChat, twoTurns, waitUntilReady } from "./chat-page.ts";
import { giveFile, readFocusedName, readStorage } from "./in-page.js";

/** As text-generation-webui finds pictures in its history. */
const documentForm = /<img src="data:image\/jpeg;base64,([A-Za-z0-9+/=]+)">/g;
const scene = await readFile(new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url));

let browser: Browser;

beforeAll(async () => {
  browser = await launchBrowser();
});

afterAll(() => browser.close());

interface ExportedFile {
  readonly conversations: readonly {
    readonly title: string;
    readonly turns: readonly { readonly user: string; readonly assistant: string; readonly shown: boolean }[];
  }[];
}

async function readExport(page: Page, button: string): Promise<{ name: string; text: string }> {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: button }).press("Enter"),
  ]);
  return { name: download.suggestedFilename(), text: await readFile(await download.path(), "utf8") };
}

async function importText(page: Page, text: string): Promise<void> {
  const [chooser] = await Promise.all([
    page.waitForEvent("filechooser"),
    page.getByRole("button", { name: "Import" }).press("Enter"),
  ]);
  await chooser.setFiles({ name: "file.json", mimeType: "application/json", buffer: Buffer.from(text) });
}

async function giveScene(page: Page, type: string, bytes: Buffer): Promise<void> {
  const file = { name: "scene", type, base64: bytes.toString("base64") };
  await page.evaluate(giveFile, { how: "drop" as const, ...file });
  await page.locator("#tray img").waitFor();
}

test("a file has the pictures as the document's JPEG, and another browser continues from it", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await giveScene(page, "image/png", scene);
  await askTwo(page);
  await page.getByRole("button", { name: "Regenerate answer 2" }).click();
  await expectTurns(page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 3"],
  ]);
  const { name, text } = await readExport(page, "Export One?");
  expect(name).toBe("one.json");
  const { conversations } = JSON.parse(text) as ExportedFile;
  const { turns } = conversations[0]!;
  expect(turns.map(({ assistant, shown }) => [assistant, shown])).toEqual([
    ["Answer 1", true],
    ["Answer 2", false],
    ["Answer 3", true],
  ]);
  const [picture, ...others] = [...turns[0]!.user.matchAll(documentForm)];
  expect(others).toEqual([]);
  expect(turns[0]!.user).toBe(`${picture![0]}One?`);
  const jpeg = Buffer.from(picture![1]!, "base64");
  expect((await sharp(jpeg).metadata()).format).toBe("jpeg");
  const pixels = await Promise.all(
    [jpeg, scene].map((bytes) => sharp(bytes).flatten({ background: "white" }).raw().toBuffer()),
  );
  const differences = pixels[0]!.map((value, index) => Math.abs(value - pixels[1]![index]!));
  expect(differences.reduce((sum, difference) => sum + difference, 0) / differences.length).toBeLessThan(2);

  await using other = await chat.openOther();
  await waitUntilReady(other.page);
  await importText(other.page, text);
  await other.page.getByText("1 conversation imported.").first().waitFor();
  await other.page.getByRole("button", { name: "One?", exact: true }).press("Enter");
  await expectTurns(other.page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 3"],
  ]);
  await ask(other.page, "Three?");
  await expectTurns(other.page, [
    ["One?", "Answer 1"],
    ["Two?", "Answer 3"],
    ["Three?", "Answer 4"],
  ]);
  expect(chat.lastMessages()[0]).toContain(`data:image/jpeg;base64,${picture![1]}`);
  await other.page.getByRole("button", { name: "Previous version of turn 2" }).click();
  await expectTurns(other.page, twoTurns);
  // A JPEG is not compressed again.
  const again = await readExport(other.page, "Export One?");
  expect(again.text).toContain(picture![1]);
  expect(other.complaints).toEqual([]);
});

test("a picture that the browser cannot decode is left out, and the page says so", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  await giveScene(page, "image/png", Buffer.from("no picture"));
  await ask(page, "One?");
  await expect.poll(() => page.locator(".history-open").allInnerTexts()).toEqual(["One?"]);
  const { text } = await readExport(page, "Export all");
  expect((JSON.parse(text) as ExportedFile).conversations[0]!.turns[0]!.user).toBe("One?");
  await page.getByText("The file lacks 1 attachment that this browser cannot convert to JPEG.").first().waitFor();
});

test("a broken file is refused with the place of the error, and nothing is kept of it", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  const turn = { user: "?", assistant: "!", after: null, shown: true };
  const time = "2026-01-31T12:00:00.000Z";
  const whole = { title: "Whole", model: "tiny", pinned: false, created: time, updated: time, turns: [turn] };
  const broken = { ...whole, turns: [{ ...turn, user: '<img src="data:image/svg+xml;base64,PHN2Zz4=">' }] };
  await importText(page, JSON.stringify({ format: "fovea-conversations", version: 1, conversations: [whole, broken] }));
  await page
    .getByText("conversations[1].turns[0].user: picture 1 has the type svg+xml; it must be one of jpeg, png, webp.")
    .first()
    .waitFor();
  expect((await page.evaluate(readStorage)).conversations).toBe("[]");
  await page.getByRole("button", { name: "Close notice" }).press("Enter");
  expect(await page.evaluate(readFocusedName)).toBe("Close conversations");
});

test("nothing of a hostile file is executed or fetched", async () => {
  await using chat = await openChat(browser);
  const { page } = chat;
  const hostile = `<img src="https://example.com/a.png"><img src=x onerror="document.title='run'"><script>document.title="run"</script>`;
  const turn = { user: hostile, assistant: hostile, after: null, shown: true, ending: hostile };
  const time = "2026-01-31T12:00:00.000Z";
  const conversation = { title: hostile, model: hostile, pinned: true, created: time, updated: time, turns: [turn] };
  await importText(page, JSON.stringify({ format: "fovea-conversations", version: 1, conversations: [conversation] }));
  await page.locator(".history-open").press("Enter");
  await expectTurns(page, [[hostile, hostile]]);
  expect(await page.locator(".turn img, .history img, .history script, .turn script").count()).toBe(0);
  expect(await page.title()).toBe(`${hostile} – Fovea playground`);
});

test("the API key is in no conversation, no storage that lasts and no export", async () => {
  await using chat = await openChat(browser, { config: { apiKeys: ["secret-key"] } });
  const { page } = chat;
  await page.getByLabel("This server requires an API key.").fill("secret-key");
  await page.keyboard.press("Enter");
  await waitUntilReady(page);
  await ask(page, "One?");
  await expectTurns(page, [["One?", "Answer 1"]]);
  const { text } = await readExport(page, "Export all");
  const stored = await page.evaluate(readStorage);
  expect(stored.conversations).toContain("Answer 1");
  expect(JSON.stringify([text, stored, page.url()])).not.toContain("secret-key");
});
