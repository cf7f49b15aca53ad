/** The page as a new user sees it: the shipped checkpoint, a real browser. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { pdfOfPictures } from "../../support/requests/pdf-writer.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { launchBrowser, openPage } from "./browser.ts";
import type { OpenPage } from "./browser.ts";
import { giveFile, measureOverhang, readClipboard, readFocusedId, readVideoWidth } from "./in-page.js";

const examplesFolder = new URL("../../../models/fovea-shapes/examples/", import.meta.url);
const sceneDescription =
  "A large red circle in the top left, a small yellow star in the top right, a large blue square in the center and a large green triangle in the bottom right.";

const environment = {
  MAX_NUM_SEQS: "4",
  LOGITS_PROCESSORS: "unhurried:Unhurried",
  LOGITS_PROCESSOR_PATH: import.meta.dirname,
};

let service: RunningService;
let browser: Browser;

beforeAll(async () => {
  service = await startService(environment);
  browser = await launchBrowser();
});

afterAll(async () => {
  await browser.close();
  await service[Symbol.asyncDispose]();
});

async function openPlayground(options?: Parameters<typeof openPage>[2]): Promise<OpenPage> {
  const opened = await openPage(browser, `${service.baseUrl}/`, options);
  await opened.page.locator("#state[data-state=ready]").waitFor();
  return opened;
}

/** The answer to the last question, once it is complete. */
async function readAnswer(page: Page): Promise<string> {
  const turn = page.locator(".turn").last();
  await turn.locator(".answer:not([aria-busy]) .figures:not([hidden])").waitFor();
  return turn.locator(".answer-text").innerText();
}

async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel("Question", { exact: true }).fill(question);
  await page.keyboard.press("Enter");
}

async function give(page: Page, how: "drop" | "paste", name: string, type: string, bytes: Buffer): Promise<void> {
  await page.evaluate(giveFile, { how, name, type, base64: bytes.toString("base64") });
}

test("one click on an example asks a question, and the conversation continues", async () => {
  await using opened = await openPlayground();
  const { page, complaints, foreignUrls } = opened;
  expect(page.url()).toBe(`${service.baseUrl}/playground`);

  await page.getByRole("button", { name: "Describe the picture." }).click();
  expect(await readAnswer(page)).toBe(sceneDescription);
  const figures = await page.locator(".figure-list").innerText();
  expect(figures).toMatch(/36 tokens in \d/);
  expect(figures).toMatch(/prompt \d+ \(64 from pictures/);
  expect(figures).toMatch(/first token after \d/);
  // The dots between them are not read out.
  expect(await page.locator(".figure-list").ariaSnapshot()).toMatch(/listitem: first token after \d+ ms$/m);

  const question = page.getByLabel("Question", { exact: true });
  await question.fill("What color is the star?");
  await page.getByRole("button", { name: "Where is the triangle?" }).click();
  expect(await readAnswer(page)).toBe("In the bottom right");
  await question.press("Enter");
  expect(await readAnswer(page)).toBe("Yellow");
  expect(await page.locator(".turn").count()).toBe(3);

  await page.getByRole("button", { name: "New" }).click();
  await page.getByRole("heading", { name: "Ask about a picture" }).waitFor();
  expect(await page.locator(".turn").count()).toBe(0);
  expect({ complaints, foreignUrls }).toEqual({ complaints: [], foreignUrls: [] });
});

test("dropped, pasted and chosen pictures are sent, removed ones are not", async () => {
  await using opened = await openPlayground();
  const { page, complaints } = opened;
  const [scene, label] = await Promise.all(
    ["scene.png", "label.png"].map((name) => readFile(new URL(name, examplesFolder))),
  );
  await give(page, "drop", "scene.png", "image/png", scene!);
  await give(page, "paste", "pasted.png", "image/png", scene!);
  await page.locator("#picture-files").setInputFiles({ name: "label.png", mimeType: "image/png", buffer: label! });
  await expect.poll(() => page.locator("#tray img").count()).toBe(3);
  await page.getByRole("button", { name: "Remove scene.png" }).click();
  await page.getByRole("button", { name: "Remove pasted.png" }).click();
  await ask(page, "What does the label say?");
  expect(await readAnswer(page)).toBe("FOVEA");
  expect(await page.locator(".question-pictures img").count()).toBe(1);
  expect(await page.locator("#tray img").count()).toBe(0);

  await give(page, "drop", "notes.txt", "text/plain", Buffer.from("no picture"));
  await expect
    .poll(() => page.locator("#composer-problem").innerText())
    .toBe("notes.txt: not a picture, a video or a PDF.");
  expect(complaints).toEqual([]);
});

test("a question that is sent right after a paste has the picture", async () => {
  await using opened = await openPlayground();
  const { page, complaints } = opened;
  const label = await readFile(new URL("label.png", examplesFolder));
  await page.getByLabel("Question", { exact: true }).fill("What does the label say?");
  const pasted = { how: "paste", name: "label.png", type: "image/png", base64: label.toString("base64") } as const;
  await page.evaluate(giveFile, { ...pasted, asks: true });
  expect(await readAnswer(page)).toBe("FOVEA");
  expect(await page.locator("#tray img").count()).toBe(0);
  expect(complaints).toEqual([]);
});

test("a video is shown, sent and answered", async () => {
  await using opened = await openPlayground();
  const { page, complaints } = opened;
  const clip = await readFile(new URL("../../fixtures/videos/vp9-alt-ref.webm", import.meta.url));
  const sent = page.waitForRequest((request) => request.url().endsWith("/v1/chat/completions"));
  await page.locator("#picture-files").setInputFiles({ name: "clip.webm", mimeType: "video/webm", buffer: clip });
  const widthOf = (selector: string) => page.locator(selector).evaluate(readVideoWidth);
  await expect.poll(() => page.locator("#tray video").count()).toBe(1);
  await expect.poll(() => widthOf("#tray video")).toBe(64);
  await ask(page, "Describe the picture.");
  expect(await readAnswer(page)).not.toBe("");
  expect((await sent).postDataJSON()).toMatchObject({
    messages: [
      {
        content: [
          { type: "video_url", video_url: { url: `data:video/webm;base64,${clip.toString("base64")}` } },
          { type: "text", text: "Describe the picture." },
        ],
      },
    ],
  });
  // Eight frames of 64 tokens, for a checkpoint without a video processor.
  expect(await page.locator(".figures").last().innerText()).toMatch(/\(512 from videos/);
  await expect.poll(() => widthOf(".question-pictures video")).toBe(64);

  // From the browser's storage.
  await page.reload();
  await expect.poll(() => page.locator(".turn").count()).toBe(1);
  await expect.poll(() => widthOf(".question-pictures video")).toBe(64);
  expect(complaints).toEqual([]);
});

test("a document is shown, sent and answered, and kept with its name", async () => {
  await using opened = await openPlayground();
  const { page, complaints } = opened;
  const file = await pdfOfPictures(new URL("label.png", examplesFolder));
  const sent = page.waitForRequest((request) => request.url().endsWith("/v1/chat/completions"));
  await give(page, "drop", "bill.pdf", "application/pdf", file);
  await expect.poll(() => page.locator("#tray .document").allInnerTexts()).toEqual(["bill.pdf"]);
  await ask(page, "What does the label say?");
  expect(await readAnswer(page)).toBe("FOVEA");
  expect((await sent).postDataJSON()).toMatchObject({
    messages: [
      {
        content: [
          {
            type: "file",
            file: { filename: "bill.pdf", file_data: `data:application/pdf;base64,${file.toString("base64")}` },
          },
          { type: "text", text: "What does the label say?" },
        ],
      },
    ],
  });
  // From the browser's storage.
  await page.reload();
  await expect.poll(() => page.locator(".question-pictures .document").allInnerTexts()).toEqual(["bill.pdf"]);
  expect(complaints).toEqual([]);
});

test("Stop ends the answer and the server's work on it", async () => {
  await using opened = await openPlayground();
  const { page, complaints } = opened;
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Maximum tokens").fill("1900");
  await page.getByLabel("The answer is").selectOption("regex");
  await page.getByLabel("Regular expression").fill("[a-z]{1900}");
  expect(await page.locator("#vllm_xargs-help").innerText()).toBe("Loaded: unhurried:Unhurried.");
  await page.getByLabel("Arguments, as a JSON object").fill('{"pause_ms": 20}');
  await ask(page, "Write.");
  const text = page.locator(".answer-text");
  await expect.poll(async () => (await text.innerText()).length).toBeGreaterThan(5);
  await page.getByRole("button", { name: "Stop" }).click();
  expect((await readAnswer(page)).length).toBeLessThan(1900);
  expect(await page.locator(".figure-list").innerText()).toMatch(/^\d+ tokens.*stopped$/s);
  await expect
    .poll(async () => (await fetch(`${service.baseUrl}/metrics`)).text())
    .toMatch(/^vllm:num_requests_running\{[^}]*\} 0$/m);
  await page.getByRole("button", { name: "Ask" }).waitFor();
  expect(complaints).toEqual([]);
});

test("an invalid setting is reported beside its field, by the page or by the server", async () => {
  await using opened = await openPlayground();
  const { page } = opened;
  let numRequests = 0;
  page.on("request", (request) => {
    if (request.method() === "POST") numRequests++;
  });
  await page.getByRole("button", { name: "Settings" }).click();
  const processorArguments = page.getByLabel("Arguments, as a JSON object");
  await processorArguments.fill('{"target": }');
  await page.getByLabel("Seed").fill("seven");
  await ask(page, "Describe the picture.");
  expect(await page.locator("#vllm_xargs-problem").innerText()).toMatch(/is not valid JSON\.$/);
  expect(await page.locator("#seed-problem").innerText()).toBe("Enter a number.");
  expect(await page.evaluate(readFocusedId)).toBe("seed");
  expect(numRequests).toBe(0);

  await processorArguments.fill("");
  await page.getByLabel("Seed").fill("");
  await page.getByLabel("Temperature").fill("7");
  await ask(page, "Describe the picture.");
  const failure = page.getByRole("alert").filter({ hasText: "temperature" });
  await failure.waitFor();
  expect(await failure.innerText()).toMatch(/status 400, about temperature/);
  expect(await page.locator("#temperature-problem").innerText()).toMatch(/temperature must be/);

  await page.getByLabel("Temperature").fill("0");
  await page.getByRole("button", { name: "Try again" }).click();
  expect(await readAnswer(page)).not.toBe("");
  expect(numRequests).toBe(2);
});

test("a picture that the server rejects is named, and its question can be edited", async () => {
  await using opened = await openPlayground();
  const { page } = opened;
  await give(page, "drop", "broken.png", "image/png", Buffer.from("not really"));
  await page.locator("#tray img").waitFor();
  await ask(page, "What is in the center?");
  await page.getByText("messages[0].content[0].image_url").waitFor();
  await page.getByRole("button", { name: "Edit the question" }).click();
  expect(await page.locator(".turn").count()).toBe(0);
  await page.getByRole("button", { name: "Remove broken.png" }).click();
  await give(page, "paste", "scene.png", "image/png", await readFile(new URL("scene.png", examplesFolder)));
  await page.locator("#tray img").waitFor();
  await page.getByRole("button", { name: "Ask" }).click();
  expect(await readAnswer(page)).toBe("A large blue square");
});

test("the answer has the chosen form", async () => {
  await using opened = await openPlayground();
  const { page } = opened;
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("The answer is").selectOption("choice");
  await page.getByLabel("Choices, one per line").fill("three\n\nfour\n");
  await page.getByRole("button", { name: "How many shapes are there?" }).click();
  expect(["three", "four"]).toContain(await readAnswer(page));
  await page.getByLabel("The answer is").selectOption("json");
  await page.getByLabel("JSON Schema").fill('{"type": "boolean"}');
  await ask(page, "Is there a red circle?");
  expect(["true", "false"]).toContain(await readAnswer(page));
});

test("each token shows its probability and alternatives, by pointer and by keyboard", async () => {
  await using opened = await openPlayground({ reducedMotion: "reduce" });
  const { page } = opened;
  await page.getByRole("button", { name: "What does the label say?" }).click();
  expect(await readAnswer(page)).toBe("FOVEA");
  const tokens = page.locator(".token");
  expect(await tokens.allInnerTexts()).toEqual(["F", "O", "V", "E", "A"]);
  const card = page.getByRole("tooltip");
  expect(await card.isVisible()).toBe(false);
  await tokens.nth(0).hover();
  expect(await card.locator("li").count()).toBe(5);
  expect(await card.locator("li.taken").innerText()).toMatch(/^F\s+99\.\d %$/);

  await tokens.nth(0).focus();
  await page.keyboard.press("ArrowRight");
  expect(await card.locator("li.taken").innerText()).toMatch(/^O\s/);
  await page.keyboard.press("Escape");
  expect(await card.isVisible()).toBe(false);

  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Show the probability of each token").uncheck();
  await ask(page, "What color is the text?");
  expect(await readAnswer(page)).toBe("Black");
  expect(await page.locator(".turn").last().locator(".token").count()).toBe(0);
});

test("the copied curl command sends the same request and gets the same answer", async () => {
  await using opened = await openPlayground({ permissions: ["clipboard-read", "clipboard-write"] });
  const { page } = opened;
  await page.getByRole("button", { name: "What is in the center?" }).click();
  const answer = await readAnswer(page);
  await page.locator(".figures").getByRole("button", { name: "Code" }).click();
  const dialog = page.getByRole("dialog");
  expect(await dialog.locator("code").innerText()).toMatch(/"url": "data:image\/png;base64,.{24}… \(2\.\d kB\)"/);
  await dialog.getByRole("button", { name: "Copy" }).click();
  await dialog.getByRole("button", { name: "Copied" }).waitFor();
  const copied = await page.evaluate(readClipboard);
  const { stdout } = await promisify(execFile)("bash", ["-c", copied]);
  const chunks = stdout.matchAll(/^data: (\{.*\})$/gm).map(([, json]) => JSON.parse(json!) as StreamChunk);
  expect([...chunks].map(({ choices }) => choices[0]!.delta.content ?? "").join("")).toBe(answer);
});

interface StreamChunk {
  readonly choices: readonly { readonly delta: { readonly content?: string } }[];
}

test("the page fits a narrow screen", async () => {
  await using opened = await openPlayground({ viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  const { page, complaints } = opened;
  expect(await page.evaluate(measureOverhang)).toBe(0);
  await page.getByRole("button", { name: "Describe the picture." }).click();
  expect(await readAnswer(page)).toBe(sceneDescription);
  expect(await page.evaluate(measureOverhang)).toBe(0);
  await page.getByRole("button", { name: "Settings" }).click();
  expect(await page.evaluate(measureOverhang)).toBe(0);
  await page.keyboard.press("Escape");
  expect(await page.getByRole("heading", { name: "Settings" }).isVisible()).toBe(false);
  expect(complaints).toEqual([]);
});
