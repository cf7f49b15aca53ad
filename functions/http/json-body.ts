/** Reads a request body as JSON, within limits. */
import { HttpError } from "./errors.ts";

/** Throws HttpError 400 for another content type or broken JSON, 413 for more than `maxBodyBytes`. */
export async function readJsonObject(request: Request, maxBodyBytes: number): Promise<object> {
  const contentType = request.headers.get("content-type")?.split(";", 1)[0]!.trim().toLowerCase();
  if (contentType !== "application/json" && !contentType?.endsWith("+json")) {
    throw new HttpError(
      400,
      "unsupported_media_type",
      "Unsupported Media Type: only application/json is allowed in Content-Type.",
    );
  }
  const body = parseJson(await readText(request, maxBodyBytes), "The body");
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw new HttpError(400, "invalid_json", "The body must be a JSON object.");
  }
  return body;
}

async function readText(request: Request, maxBodyBytes: number): Promise<string> {
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > maxBodyBytes) throw tooLarge(`${announced} bytes`, maxBodyBytes);
  const chunks: Uint8Array[] = [];
  let numBytes = 0;
  for await (const chunk of request.body ?? []) {
    numBytes += chunk.byteLength;
    if (numBytes > maxBodyBytes) throw tooLarge("more bytes", maxBodyBytes);
    chunks.push(chunk);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch (error) {
    throw new HttpError(400, "invalid_json", "The body is not UTF-8.", { cause: error });
  }
}

/** Throws HttpError 400 that says where what `subject` names is no JSON. */
export function parseJson(text: string, subject: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // V8's message quotes the text around the fault, which may be an image or a secret; its position is enough.
    const position = /position (\d+)/.exec(error instanceof Error ? error.message : "")?.[1];
    const where = position === undefined ? "" : ` at character ${position}`;
    throw new HttpError(400, "invalid_json", `${subject} is not valid JSON${where}.`, { cause: error });
  }
}

/** The rest of the body is not read, so the connection cannot be used again. */
function tooLarge(found: string, maxBodyBytes: number): HttpError {
  return new HttpError(413, "body_too_large", `The body has ${found}; the limit is ${maxBodyBytes}.`, {
    headers: { Connection: "close" },
  });
}
