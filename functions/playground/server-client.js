/** The page's requests to its server. Every error is a ServerError with a message for the reader. */
import { readEvents } from "./event-stream.js";

/** @import { ChatChunk } from "./answer.js" */
/** @import { ChatRequest } from "./chat-request.js" */

/** @typedef {{ readonly picture: string, readonly questions: readonly string[] }} Example */

/**
 * The model's properties for the page; null if the server does not know them.
 *
 * @typedef {object} ServiceFacts
 * @property {boolean} accepts_images
 * @property {boolean} accepts_videos
 * @property {number | null} max_model_len
 * @property {number} max_logprobs
 * @property {number} max_body_bytes
 * @property {Readonly<Record<string, number>>} default_sampling  By wire name.
 * @property {readonly Example[]} examples
 */

/** @typedef {"starting" | "ready" | "stalled" | "draining" | "failed"} ServiceState */

/**
 * @typedef {object} ServerErrorOptions
 * @property {number} [status]  0 where there was no answer.
 * @property {string | null} [param]
 * @property {string | null} [code]
 */

export class ServerError extends Error {
  /** @override */
  name = "ServerError";
  /** The HTTP status; 0 without an answer, 200 for an error within a stream. */
  status;
  /** The path of the invalid request field. */
  param;
  code;

  /**
   * @param {string} message
   * @param {ServerErrorOptions} [options]
   */
  constructor(message, { status = 0, param = null, code = null } = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
  }
}

/** @typedef {ReturnType<typeof createServerClient>} ServerClient */

/**
 * @param {object} options
 * @param {URL} options.baseUrl  Where the server's routes begin.
 * @param {() => string | null} options.readKey
 */
export function createServerClient({ baseUrl, readKey }) {
  /**
   * @param {string} path
   * @param {Omit<RequestInit, "headers">} [init]  A body is JSON.
   */
  async function call(path, init = {}) {
    const key = readKey();
    const headers = {
      ...(init.body && { "content-type": "application/json" }),
      ...(key !== null && { authorization: `Bearer ${key}` }),
    };
    let response;
    try {
      response = await fetch(new URL(path, baseUrl), { ...init, headers });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ServerError("The server is unreachable.");
    }
    if (!response.ok) throw await readError(response);
    return response;
  }

  return {
    baseUrl,

    /**
     * From /livez, which says the same as /health and answers 200 while the model loads.
     *
     * @returns {Promise<ServiceState>}
     */
    async state() {
      const { status } = await (await call("livez")).json();
      return status;
    },

    /** @returns {Promise<ServiceFacts>} */
    async facts() {
      return (await call("playground/service.json")).json();
    },

    /** @returns {Promise<string[]>} */
    async models() {
      return readIds(await call("v1/models"));
    },

    /** @returns {Promise<string[]>} */
    async logitsProcessors() {
      return readIds(await call("v1/logits-processors"));
    },

    /**
     * @param {ChatRequest} request
     * @param {AbortSignal} signal
     * @returns {AsyncGenerator<ChatChunk, void>}
     */
    async *streamChat(request, signal) {
      const body = JSON.stringify(request);
      const response = await call("v1/chat/completions", { method: "POST", body, signal });
      if (response.body === null) throw new ServerError("The answer has no body.", { status: response.status });
      try {
        for await (const event of readEvents(response.body)) {
          if (event === "[DONE]") return;
          const chunk = JSON.parse(event);
          if (chunk.error) throw toServerError(response.status, chunk);
          yield chunk;
        }
      } catch (error) {
        if (signal.aborted || error instanceof ServerError) throw error;
      }
      throw new ServerError("The connection was lost before the answer was complete.");
    },
  };
}

/** @param {Response} response */
async function readIds(response) {
  const { data } = await response.json();
  return data.map((/** @type {{ id: string }} */ { id }) => id);
}

/** @param {Response} response */
async function readError(response) {
  const text = await response.text();
  try {
    return toServerError(response.status, JSON.parse(text));
  } catch {
    // A proxy's page, or /livez of a failed engine.
    return new ServerError(`The server answered with status ${response.status}.`, { status: response.status });
  }
}

/**
 * @param {number} status
 * @param {{ error: { message: string, param?: string | null, code?: string | null } }} body
 */
function toServerError(status, { error: { message, param, code } }) {
  return new ServerError(message, { status, param: param ?? null, code: code ?? null });
}
