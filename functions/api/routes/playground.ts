/**
 * The web page at /playground: its files from the checkout, and the facts about the service that it shows. Nothing is
 * read before it is requested.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";
import type { Context, Handler } from "hono";

import type { ApiConfig } from "../../app-dependencies.ts";
import { HttpError } from "../../http/errors.ts";
import type { Service } from "../../service.ts";

const pageFolder = new URL("../../playground/", import.meta.url);
/** Example pictures of the shipped checkpoint; a deployment may leave them out. */
const examplesFolder = new URL("../../../models/fovea-shapes/examples/", import.meta.url);

const contentTypes: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
};

/** The page can load its own files, call its own server and show the user's pictures, and nothing else. */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "media-src data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join("; ");

const securityHeaders = {
  "Content-Security-Policy": contentSecurityPolicy,
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Resource-Policy": "same-origin",
} as const;

/** GET /playground: the page itself. */
export function playgroundPageRoute(): Handler {
  return async (c) => answerFile(c, pageFolder, "index.html");
}

/** GET /playground/:file. */
export function playgroundFileRoute(): Handler {
  return async (c) => answerFile(c, pageFolder, c.req.param("file") ?? "");
}

/** GET /playground/examples/:file. */
export function examplePictureRoute(): Handler {
  return async (c) => answerFile(c, examplesFolder, c.req.param("file") ?? "");
}

/** GET /playground/service.json: the model's properties and limits for the page. */
export function playgroundServiceRoute(service: Service, config: ApiConfig): Handler {
  return async (c) => {
    const modelInfo = service.engine?.modelInfo ?? null;
    const { temperature, topP, maxTokens } = modelInfo?.defaultSamplingParams ?? {};
    return c.json({
      accepts_images: modelInfo?.acceptsImages ?? false,
      accepts_videos: modelInfo?.acceptsVideos ?? false,
      max_model_len: modelInfo?.maxModelLen ?? null,
      max_logprobs: config.maxLogprobs,
      max_body_bytes: config.maxBodyBytes,
      default_sampling: { temperature, top_p: topP, max_tokens: maxTokens },
      examples: await readExamples(),
    });
  };
}

/** Browsers revalidate each time and usually get 304. */
async function answerFile(c: Context, folder: URL, name: string): Promise<Response> {
  const contentType = contentTypes[extname(name)];
  // A name, never a path, so nothing outside the folder can be requested.
  const isName = /^[\w-]+\.\w+$/.test(name);
  const bytes = contentType !== undefined && isName ? await tryReadFile(new URL(name, folder)) : null;
  if (bytes === null) throw new HttpError(404, "not_found", `There is no ${c.req.path.slice(0, 200)}.`);
  const etag = `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 16)}"`;
  const headers = { ...securityHeaders, "Content-Type": contentType!, "Cache-Control": "no-cache", ETag: etag };
  if (c.req.header("if-none-match") === etag) return c.body(null, 304, headers);
  return c.body(bytes, 200, headers);
}

async function tryReadFile(file: URL): Promise<Uint8Array<ArrayBuffer> | null> {
  try {
    return await readFile(file);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

interface Example {
  /** Path below /playground/. */
  readonly picture: string;
  readonly questions: readonly string[];
}

async function readExamples(): Promise<Example[]> {
  const lines = (await tryReadFile(new URL("questions.jsonl", examplesFolder))) ?? new Uint8Array();
  const rows = new TextDecoder()
    .decode(lines)
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as { readonly image: string; readonly question: string });
  return Map.groupBy(rows, ({ image }) => image)
    .entries()
    .map(([image, asked]) => ({ picture: `examples/${image}`, questions: asked.map(({ question }) => question) }))
    .toArray();
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "EISDIR");
}
