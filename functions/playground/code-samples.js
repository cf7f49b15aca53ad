/** A request of the page as code to run elsewhere. It never contains a key, which comes from $API_KEY. */

/** @import { ChatRequest } from "./chat-request.js" */

/** @typedef {"curl" | "openai" | "json"} CodeKind */

/** @typedef {{ readonly baseUrl: URL, readonly needsKey: boolean }} Target */

/**
 * @param {CodeKind} kind
 * @param {ChatRequest} request
 * @param {Target} target
 */
export function toCode(kind, request, target) {
  // Options that only the page needs.
  const { stream_options: _, ...rest } = request;
  const body = JSON.stringify(rest, null, 2);
  switch (kind) {
    case "curl":
      return toCurl(body, target);
    case "openai":
      return toOpenAi(body, target);
    case "json":
      return `${body}\n`;
  }
}

/**
 * @param {string} body
 * @param {Target} target
 */
function toCurl(body, { baseUrl, needsKey }) {
  const lines = [
    `curl -sN ${new URL("v1/chat/completions", baseUrl)}`,
    `-H 'content-type: application/json'`,
    ...(needsKey ? [`-H "authorization: Bearer $API_KEY"`] : []),
    `-d @- <<'JSON'`,
  ];
  return `${lines.join(" \\\n  ")}\n${body}\nJSON\n`;
}

/**
 * @param {string} body
 * @param {Target} target
 */
function toOpenAi(body, { baseUrl, needsKey }) {
  const apiKey = needsKey ? "process.env.API_KEY" : `"none"`;
  return `import OpenAI from "openai";

const client = new OpenAI({ baseURL: "${new URL("v1", baseUrl)}", apiKey: ${apiKey} });
const stream = await client.chat.completions.create(${body});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
`;
}

/** For display: pictures of more than a few bytes are cut to their beginning and their size. */
export function shortenPictures(/** @type {string} */ code) {
  return code.replaceAll(/(data:[\w.+-]+\/[\w.+-]+;base64,[\w+/]{24})[\w+/=]{40,}/g, (url, start) => {
    const kilobytes = (url.length * 3) / 4 / 1000;
    return `${start}… (${kilobytes.toFixed(1)} kB)`;
  });
}
