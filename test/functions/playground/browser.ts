/** Chromium, driven through Playwright; what a page complains of, and where it goes, is kept. */
import { chromium } from "playwright-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";

import { ensureChromium } from "../../support/programs/chromium.ts";

/** Its own errands (updates, safe browsing) would be requests of no page. */
const flags = [
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Throws where there is no Chromium, with the command that installs it. */
export async function launchBrowser(): Promise<Browser> {
  const executablePath = await ensureChromium();
  // As root, which containers and CI are, Chromium has no sandbox of its own.
  return chromium.launch({ executablePath, args: flags, chromiumSandbox: false });
}

export interface OpenPage extends AsyncDisposable {
  readonly page: Page;
  /** Errors of scripts and in the console, refusals of the content security policy among them. */
  readonly complaints: readonly string[];
  /** Of every request but those to the page's own origin and `data:`. */
  readonly foreignUrls: readonly string[];
}

/** A page with storage of its own. */
export async function openPage(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<OpenPage> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints: string[] = [];
  const foreignUrls: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (protocol !== "data:" && origin !== new URL(url).origin) foreignUrls.push(request.url());
  });
  await page.goto(url);
  return { page, complaints, foreignUrls, [Symbol.asyncDispose]: () => context.close() };
}
