/** The file that conversations are exported to and imported from: JSON, with the pictures inline in the questions. */
import { InlinePictureError, joinPictures, splitPictures } from "./inline-pictures.js";

/** @import { ConversationRecord } from "./database.js" */
/** @import { InlinePicture } from "./inline-pictures.js" */

/**
 * A version of a question and its answer, as text.
 *
 * @typedef {object} FileTurn
 * @property {string} user  With the pictures before the question.
 * @property {string} assistant  Empty without an answer.
 * @property {number | null} after  Index of the turn before it; null for a first one.
 * @property {boolean} shown  On the page when the file was written: those turns are one conversation, in order.
 * @property {string | null} [ending]
 */

/**
 * @typedef {object} FileConversation
 * @property {string} title
 * @property {string} model
 * @property {boolean} pinned
 * @property {string} created
 * @property {string} updated
 * @property {readonly FileTurn[]} turns
 */

/** @typedef {Omit<FileTurn, "user"> & { question: string, pictures: readonly InlinePicture[] }} ParsedTurn */
/** @typedef {Omit<FileConversation, "turns"> & { turns: readonly ParsedTurn[] }} ParsedConversation */

const format = "fovea-conversations";
const VERSION = 1;
/** As many as the page keeps. */
const MAX_CONVERSATIONS = 200;
/** With all versions; far more than a reader asks in one conversation. */
const MAX_TURNS = 2000;
const MAX_SHORT_TEXT_LENGTH = 200;

/** The message is for the reader, with the path of what is wrong. */
export class FileError extends Error {}

/**
 * @param {ConversationRecord} record
 * @param {readonly string[]} pathIds  Of the turns that are shown.
 * @param {(pictureId: string) => string | null} jpegOf  Base64; null for one that cannot be written.
 * @returns {FileConversation}
 */
export function toFileConversation({ title, model, isPinned, createdAt, updatedAt, turns }, pathIds, jpegOf) {
  const indexes = new Map(turns.map(({ id }, index) => [id, index]));
  return {
    title,
    model,
    pinned: isPinned,
    created: new Date(createdAt).toISOString(),
    updated: new Date(updatedAt).toISOString(),
    turns: turns.map(({ id, parentId, question, pictures, answer, ending }) => ({
      user: joinPictures(
        pictures.map((picture) => jpegOf(picture.id)).filter((base64) => base64 !== null),
        question,
      ),
      assistant: answer,
      after: indexes.get(parentId ?? "") ?? null,
      shown: pathIds.includes(id),
      ending,
    })),
  };
}

/**
 * The file in pieces, so that no text must hold it whole.
 *
 * @param {AsyncIterable<FileConversation>} conversations
 */
export async function toFile(conversations) {
  const pieces = [`{"format": "${format}", "version": ${VERSION}, "conversations": [`];
  for await (const conversation of conversations) {
    pieces.push(pieces.length === 1 ? "\n" : ",\n", JSON.stringify(conversation, null, 1));
  }
  return new Blob([...pieces, "\n]}\n"], { type: "application/json" });
}

/**
 * Nothing in a file is executed or fetched: pictures are bytes of the file, and all else is text.
 *
 * @param {string} text
 * @returns {ParsedConversation[]}
 * @throws {FileError}  If the file is not one of those that `toFile` writes.
 */
export function parseFile(text) {
  const file = readObject(parseJson(text), "the file");
  if (file.format !== format) throw new FileError(`This file has no conversations: format must be "${format}".`);
  if (file.version !== VERSION) {
    throw new FileError(`version is ${JSON.stringify(file.version)}; this page reads version ${VERSION}.`);
  }
  return readList(file.conversations, "conversations", MAX_CONVERSATIONS).map((value, index) =>
    readConversation(value, `conversations[${index}]`),
  );
}

/** @param {string} text */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FileError(`This file is not JSON: ${/** @type {SyntaxError} */ (error).message}.`);
  }
}

/**
 * @param {unknown} value
 * @param {string} path
 * @returns {ParsedConversation}
 */
function readConversation(value, path) {
  const { title, model, pinned, created, updated, turns } = readObject(value, path);
  return {
    title: readText(title, `${path}.title`, MAX_SHORT_TEXT_LENGTH),
    model: readText(model, `${path}.model`, MAX_SHORT_TEXT_LENGTH),
    pinned: readBoolean(pinned, `${path}.pinned`),
    created: readTime(created, `${path}.created`),
    updated: readTime(updated, `${path}.updated`),
    turns: readList(turns, `${path}.turns`, MAX_TURNS).map((turn, index) =>
      readTurn(turn, index, `${path}.turns[${index}]`),
    ),
  };
}

/**
 * @param {unknown} value
 * @param {number} index
 * @param {string} path
 * @returns {ParsedTurn}
 */
function readTurn(value, index, path) {
  const { user, assistant, after, shown, ending } = readObject(value, path);
  const isEarlier = typeof after === "number" && Number.isInteger(after) && after >= 0 && after < index;
  if (after !== null && !isEarlier) {
    throw new FileError(
      `${path}.after is ${JSON.stringify(after)}; it must be null or a number from 0 below ${index}.`,
    );
  }
  const { text, pictures } = readQuestion(readText(user, `${path}.user`), `${path}.user`);
  return {
    question: text,
    pictures,
    assistant: readText(assistant, `${path}.assistant`),
    after: isEarlier ? after : null,
    shown: readBoolean(shown, `${path}.shown`),
    ending: ending === undefined || ending === null ? null : readText(ending, `${path}.ending`, MAX_SHORT_TEXT_LENGTH),
  };
}

/**
 * @param {string} user
 * @param {string} path
 */
function readQuestion(user, path) {
  try {
    return splitPictures(user);
  } catch (error) {
    if (error instanceof InlinePictureError) throw new FileError(`${path}: ${error.message}.`);
    throw error;
  }
}

/**
 * @param {unknown} value
 * @param {string} path
 * @returns {Readonly<Record<string, unknown>>}
 */
function readObject(value, path) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new FileError(`${path} must be an object.`);
  }
  return /** @type {Record<string, unknown>} */ (value);
}

/**
 * @param {unknown} value
 * @param {string} path
 * @param {number} maxLength
 * @returns {readonly unknown[]}
 */
function readList(value, path, maxLength) {
  if (!Array.isArray(value)) throw new FileError(`${path} must be a list.`);
  if (value.length > maxLength) throw new FileError(`${path} has ${value.length} entries; the limit is ${maxLength}.`);
  return value;
}

/**
 * @param {unknown} value
 * @param {string} path
 * @param {number} [maxLength]
 */
function readText(value, path, maxLength = Infinity) {
  if (typeof value !== "string") throw new FileError(`${path} must be a text.`);
  if (value.length > maxLength) {
    throw new FileError(`${path} has ${value.length} characters; the limit is ${maxLength}.`);
  }
  return value;
}

/**
 * @param {unknown} value
 * @param {string} path
 */
function readBoolean(value, path) {
  if (typeof value !== "boolean") throw new FileError(`${path} must be true or false.`);
  return value;
}

/**
 * @param {unknown} value
 * @param {string} path
 */
function readTime(value, path) {
  const text = readText(value, path, MAX_SHORT_TEXT_LENGTH);
  if (Number.isNaN(Date.parse(text))) throw new FileError(`${path} must be a time such as 2026-01-31T12:00:00.000Z.`);
  return text;
}
