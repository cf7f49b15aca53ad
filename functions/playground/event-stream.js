/** Reads server-sent events in the chat route's format: one `data:` line per event, comments between them. */

/**
 * The data of each event. Leaving the loop cancels the stream.
 *
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @returns {AsyncGenerator<string, void>}
 */
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (unread + value).split("\n\n");
      unread = events.pop() ?? "";
      for (const event of events) {
        if (event.startsWith("data: ")) yield event.slice("data: ".length);
      }
    }
  } finally {
    await reader.cancel();
  }
}
