/** Takes the README's screenshot of the page: `node test/functions/playground/screenshot.ts docs/playground.png`. */
import { startService } from "../../support/service/running-service.ts";
import { launchBrowser, openPage } from "./browser.ts";

const [, , file = "docs/playground.png"] = process.argv;
await using service = await startService();
const browser = await launchBrowser();
const { page } = await openPage(browser, `${service.baseUrl}/playground`, {
  viewport: { width: 1120, height: 850 },
  colorScheme: "light",
});
const figures = page.locator(".answer:not([aria-busy]) .figures:not([hidden])");

await page.locator("#picture-files").setInputFiles("models/fovea-shapes/examples/scene.png");
await page.locator("#tray img").waitFor();
await page.getByLabel("Question", { exact: true }).fill("Describe the picture.");
await page.keyboard.press("Enter");
await figures.nth(0).waitFor();
await page.getByLabel("Question", { exact: true }).fill("Is the square left of the star?");
await page.keyboard.press("Enter");
await figures.nth(1).waitFor();
await page.locator(".turn").last().locator(".token").first().hover();
await page.screenshot({ path: file });
await browser.close();
