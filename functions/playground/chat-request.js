/** The body of a chat request, from what the page holds. */

import { isDocument, isVideo } from "./preview.js";

/**
 * A picture as it is sent, or a video, or a document.
 *
 * @typedef {object} Picture
 * @property {string} name
 * @property {string} url  A data URL.
 */

/** @typedef {{ readonly question: string, readonly pictures: readonly Picture[] }} Question */
/** @typedef {Question & { readonly answer: string }} AnsweredQuestion */

/**
 * @typedef {{ readonly type: "text", readonly text: string }
 *   | { readonly type: "image_url", readonly image_url: { readonly url: string } }
 *   | { readonly type: "video_url", readonly video_url: { readonly url: string } }
 *   | { readonly type: "file", readonly file: { readonly filename: string, readonly file_data: string } }} ContentPart
 */
/** @typedef {{ readonly role: string, readonly content: string | readonly ContentPart[] }} ChatMessage */
/**
 * @typedef {Readonly<Record<string, unknown>> & {
 *   readonly model: string,
 *   readonly messages: readonly ChatMessage[],
 * }} ChatRequest
 */

/**
 * Streamed, and with the usage so far on every chunk: an answer that is stopped has no last one.
 *
 * @param {object} parts
 * @param {string} parts.model
 * @param {string} parts.systemPrompt  Empty for none.
 * @param {readonly AnsweredQuestion[]} parts.history
 * @param {Question} parts.question
 * @param {Readonly<Record<string, unknown>>} parts.fields  Those of decoding, by wire name.
 * @returns {ChatRequest}
 */
export function createChatRequest({ model, systemPrompt, history, question, fields }) {
  return {
    model,
    messages: [
      ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
      ...history.flatMap((turn) => [toUserMessage(turn), { role: "assistant", content: turn.answer }]),
      toUserMessage(question),
    ],
    ...fields,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
}

/**
 * @param {Question} question
 * @returns {ChatMessage}
 */
function toUserMessage({ question, pictures }) {
  if (pictures.length === 0) return { role: "user", content: question };
  return {
    role: "user",
    content: [
      ...pictures.map(toPart),
      ...(question === "" ? [] : [/** @type {const} */ ({ type: "text", text: question })]),
    ],
  };
}

/**
 * @param {Picture} picture
 * @returns {ContentPart}
 */
function toPart(picture) {
  const { name, url } = picture;
  if (isDocument(picture)) return { type: "file", file: { filename: name, file_data: url } };
  return isVideo(picture) ? { type: "video_url", video_url: { url } } : { type: "image_url", image_url: { url } };
}
