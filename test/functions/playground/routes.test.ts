import { expect, test } from "vitest";

import { createTestApp } from "../../support/service/test-app.ts";

const { app } = createTestApp();
const browserHeaders = { accept: "text/html,application/xhtml+xml,*/*;q=0.8" };

test("the page and its files have a policy that allows nothing from other origins", async () => {
  const files = {
    "/playground": "text/html; charset=utf-8",
    "/playground/main.js": "text/javascript; charset=utf-8",
    "/playground/page.css": "text/css; charset=utf-8",
    "/playground/icon.svg": "image/svg+xml",
    "/playground/examples/scene.png": "image/png",
  };
  for (const [path, contentType] of Object.entries(files)) {
    const { status, headers } = await app.request(path);
    expect([path, status, headers.get("content-type")]).toEqual([path, 200, contentType]);
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    const policy = headers.get("content-security-policy");
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self';");
    expect(policy).not.toContain("unsafe");
    expect(policy).not.toContain("http");
  }
});

test("a file that the browser has is not sent again", async () => {
  const first = await app.request("/playground/main.js");
  const headers = { "if-none-match": first.headers.get("etag")! };
  const second = await app.request("/playground/main.js", { headers });
  expect([second.status, await second.text()]).toEqual([304, ""]);
  expect((await app.request("/playground/page.css", { headers })).status).toBe(200);
});

test.for([
  "/playground/none.js",
  "/playground/tsconfig.json",
  "/playground/..%2F..%2Fpackage.json",
  "/playground/..%2Fconfig.ts",
  "/playground/%2e%2e/config.js",
  "/playground/examples",
  "/playground/examples/questions.jsonl",
  "/playground/main.js%00.png",
])("%s is not found", async (path) => {
  expect((await app.request(path)).status).toBe(404);
});

test("the page receives the model's abilities and the example pictures", async () => {
  const response = await app.request("/playground/service.json");
  expect(await response.json()).toMatchObject({
    accepts_images: true,
    accepts_videos: true,
    max_logprobs: 20,
    max_body_bytes: 100_000,
    default_sampling: { max_tokens: 256 },
    examples: [
      { picture: "examples/scene.png", questions: expect.arrayContaining(["Describe the picture."]) },
      { picture: "examples/circles.png" },
      { picture: "examples/label.png" },
    ],
  });
});

test("browsers that request / are redirected to the page, and other clients get JSON", async () => {
  const led = await app.request("/", { headers: browserHeaders });
  expect([led.status, led.headers.get("location"), led.headers.get("vary")]).toEqual([302, "playground", "Accept"]);
  for (const accept of ["*/*", "application/json"]) {
    const response = await app.request("/", { headers: { accept } });
    expect(await response.json()).toMatchObject({ name: "fovea", status: "ready" });
  }
});

test("when it is turned off there is no page, and / answers browsers like other clients", async () => {
  const { app: plain } = createTestApp({ config: { hasPlayground: false } });
  expect((await plain.request("/playground")).status).toBe(404);
  expect((await plain.request("/playground/main.js")).status).toBe(404);
  const response = await plain.request("/", { headers: browserHeaders });
  expect(await response.json()).toMatchObject({ name: "fovea" });
});
