/** Chromium, driven through Playwright. Records a page's errors and requests. */
import { chromium } from "playwright-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";

import { ensureChromium } from "../../support/programs/chromium.ts";

/** Without these flags, its own requests (updates, safe browsing) would be counted. */
const flags = [
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Throws if there is no Chromium, with the command that installs it. */
export async function launchBrowser(): Promise<Browser> {
  const executablePath = await ensureChromium();
  // As root, as in containers and CI, Chromium has no sandbox.
  return chromium.launch({ executablePath, args: flags, chromiumSandbox: false });
}

export interface OpenPage extends AsyncDisposable {
  readonly page: Page;
  /** Errors of scripts and in the console, including violations of the content security policy. */
  readonly complaints: readonly string[];
  /** URLs of all requests except those to the page's own origin and `data:`. */
  readonly foreignUrls: readonly string[];
}

/** A page with separate storage. */
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
