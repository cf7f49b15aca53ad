/** Exports saved conversations to a file, and imports them from one. */
import { FileError, parseFile, toFile, toFileConversation } from "./conversation-file.js";
import { create } from "./elements.js";
import { formatMegabytes } from "./history.js";
import { createId } from "./ids.js";
import { readBytes, toJpegBase64 } from "./picture-bytes.js";
import { TurnTree } from "./turn-tree.js";

/** @import { ParsedConversation } from "./conversation-file.js" */
/** @import { ConversationRecord } from "./database.js" */
/** @import { History } from "./history.js" */
/** @import { PictureBytes } from "./picture-bytes.js" */

/** All that the page keeps, with its pictures in base64. A text in a browser has at most about half a gigabyte. */
const MAX_FILE_BYTES = 400_000_000;

/** So that the browser has begun to save the file. */
const REVOKE_AFTER_MS = 60_000;

/**
 * Gives the file to the reader. Returns the number of pictures that are missing from it, because the browser cannot
 * decode them.
 *
 * @param {readonly ConversationRecord[]} records
 * @param {History} history
 */
export async function exportConversations(records, history) {
  let numMissing = 0;
  async function* convert() {
    for (const record of records) {
      const blobs = await history.readPictures(record);
      /** @type {Map<string, string | null>} */
      const jpegs = new Map();
      for (const [id, blob] of blobs) jpegs.set(id, await toJpegBase64(blob));
      numMissing += [...jpegs.values()].filter((jpeg) => jpeg === null).length;
      yield toFileConversation(record, pathOf(record), (id) => jpegs.get(id) ?? null);
    }
  }
  const [first] = records;
  const name = records.length === 1 && first !== undefined ? toFileName(first.title) : "conversations";
  download(await toFile(convert()), `${name}.json`);
  return numMissing;
}

/**
 * Returns the number of conversations.
 *
 * @param {File} file
 * @param {History} history
 * @throws {FileError}  If the file is too long or is no export.
 */
export async function importConversations(file, history) {
  if (file.size > MAX_FILE_BYTES) {
    const sizes = `${formatMegabytes(file.size)}; the limit is ${formatMegabytes(MAX_FILE_BYTES)}`;
    throw new FileError(`This file has ${sizes}. Export conversations one by one.`);
  }
  /** @type {Map<string, Promise<PictureBytes>>} */
  const known = new Map();
  const records = await Promise.all(parseFile(await file.text()).map((parsed) => toRecord(parsed, known)));
  const pictures = await Promise.all(known.values());
  await history.add(records, new Map(pictures.map(({ id, blob }) => [id, blob])));
  return records.length;
}

/**
 * @param {ParsedConversation} parsed
 * @param {Map<string, Promise<PictureBytes>>} known  Pictures by data URL: versions of a turn share theirs.
 * @returns {Promise<ConversationRecord>}
 */
async function toRecord({ title, model, pinned, created, updated, turns }, known) {
  const ids = turns.map(() => createId());
  return {
    id: createId(),
    title,
    isPinned: pinned,
    model,
    createdAt: Date.parse(created),
    updatedAt: Date.parse(updated),
    turns: await Promise.all(
      turns.map(async ({ question, pictures, assistant, after, shown, ending }, index) => ({
        id: ids[index] ?? createId(),
        parentId: after === null ? null : (ids[after] ?? null),
        question,
        pictures: await Promise.all(
          pictures.map(async ({ type, base64 }, position) => {
            const name = `picture ${position + 1}`;
            const url = `data:image/${type};base64,${base64}`;
            const bytes = known.get(url) ?? readBytes({ name, url });
            known.set(url, bytes);
            const { id, blob } = await bytes;
            return { id, name, numBytes: blob.size };
          }),
        ),
        answer: assistant,
        ending: ending ?? null,
        isShown: shown,
      })),
    ),
  };
}

/** @param {ConversationRecord} record */
function pathOf({ id, turns }) {
  const tree = new TurnTree(
    id,
    turns.map((turn) => ({ ...turn, question: { question: turn.question, pictures: [] } })),
  );
  return tree.path.map((turn) => turn.id);
}

/** @param {string} title */
function toFileName(title) {
  return (
    title
      .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
      .replaceAll(/^-|-$/g, "")
      .toLowerCase() || "conversation"
  );
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
function download(blob, name) {
  const url = URL.createObjectURL(blob);
  create("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), REVOKE_AFTER_MS);
}
