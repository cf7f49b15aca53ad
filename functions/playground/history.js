/**
 * The saved conversations: within bounds, with each picture kept once. The oldest conversations that are not pinned are
 * deleted where the bounds would be exceeded.
 */
import { readBytes, toPicture } from "./picture-bytes.js";
import { TurnTree } from "./turn-tree.js";

/** @import { Picture } from "./chat-request.js" */
/** @import { ConversationRecord, Database, StoredPicture, StoredTurn } from "./database.js" */
/** @import { PictureBytes } from "./picture-bytes.js" */
/** @import { Turn } from "./turn-tree.js" */

/** @typedef {{ readonly maxConversations: number, readonly maxBytes: number }} Limits */

/** More could no longer be looked through, and all records are read when one is written. */
const MAX_CONVERSATIONS = 200;
/** A few hundred photographs; browsers give a site much more. */
const MAX_BYTES = 250_000_000;
/** As much as fits in the list. */
const MAX_TITLE_LENGTH = 80;

/** @type {Limits} */
const defaultLimits = { maxConversations: MAX_CONVERSATIONS, maxBytes: MAX_BYTES };

/** The message is for the reader. */
export class HistoryError extends Error {}

export class History {
  /** @type {readonly ConversationRecord[]} */
  #records = [];
  /** Titles and pins of conversations that were deleted, in case that they are saved again. */
  #former = /** @type {Map<string, ConversationRecord>} */ (new Map());
  /** Deleted by the reader, so that an answer that ends later does not bring them back. */
  #deletedIds = /** @type {Set<string>} */ (new Set());
  /** Of the last change: changes are made in order. */
  #last = /** @type {Promise<unknown>} */ (Promise.resolve());
  #database;
  #limits;
  #on;
  #channel;

  /**
   * @param {object} options
   * @param {Database} options.database
   * @param {Limits} [options.limits]
   * @param {BroadcastChannel} [options.channel]  To the other tabs.
   * @param {object} options.on
   * @param {() => void} options.on.change
   * @param {(ids: readonly string[]) => void} options.on.otherTab  Has changed conversations.
   * @param {(titles: readonly string[], limits: Limits) => void} options.on.evicted
   */
  constructor({ database, limits = defaultLimits, channel = new BroadcastChannel("fovea-conversations"), on }) {
    this.#database = database;
    this.#limits = limits;
    this.#channel = channel;
    this.#on = on;
    this.#channel.addEventListener("message", ({ data }) => void this.load().then(() => on.otherTab(data)));
  }

  get isLasting() {
    return this.#database.isLasting;
  }

  get limits() {
    return this.#limits;
  }

  /** Pinned ones first, then by the time of the last change, latest first. */
  get records() {
    return this.#records.toSorted(
      (one, other) => Number(other.isPinned) - Number(one.isPinned) || other.updatedAt - one.updatedAt,
    );
  }

  /** @throws {HistoryError}  If the browser cannot read them. */
  async load() {
    try {
      this.#records = await this.#database.readRecords();
    } catch (error) {
      throw new HistoryError(`The browser cannot read its conversations: ${String(error)}`, { cause: error });
    }
    this.#on.change();
  }

  /**
   * Null if there is none of that id.
   *
   * @param {string} id
   * @returns {Promise<TurnTree | null>}
   */
  async open(id) {
    const record = this.#records.find((each) => each.id === id);
    if (record === undefined) return null;
    const blobs = await this.readPictures(record);
    /** @type {Map<string, Promise<Picture>>} */
    const pictures = new Map();
    const toShared = (/** @type {StoredPicture} */ { id, name }) => {
      const blob = blobs.get(id) ?? new Blob();
      const picture = pictures.get(id) ?? toPicture(name, { id, blob });
      pictures.set(id, picture);
      return picture;
    };
    const turns = await Promise.all(
      record.turns.map(async ({ question, pictures, ...turn }) => {
        return { ...turn, question: { question, pictures: await Promise.all(pictures.map(toShared)) } };
      }),
    );
    const tree = new TurnTree(id, turns);
    tree.model = record.model;
    return tree;
  }

  /** @param {ConversationRecord} record */
  async readPictures({ turns }) {
    const ids = new Set(turns.flatMap(({ pictures }) => pictures.map(({ id }) => id)));
    return this.#database.readPictures([...ids]);
  }

  /**
   * Saves a conversation as it is when its turn comes; one without turns is deleted.
   *
   * @param {TurnTree} tree
   * @throws {HistoryError}  If there is no room, or the browser refuses.
   */
  async save(tree) {
    await this.#enqueue(async () => {
      if (this.#deletedIds.has(tree.id)) return;
      const blobs = await readBlobs(tree.turns);
      const turns = tree.turns.filter(({ question }) => question.pictures.every((picture) => blobs.has(picture)));
      const stored = turns.map((turn) => toStored(turn, blobs));
      const now = Date.now();
      const byId = new Map([...blobs.values()].map(({ id, blob }) => [id, blob]));
      await this.#update(
        (records) => {
          const former = records.find(({ id }) => id === tree.id) ?? this.#former.get(tree.id);
          const others = records.filter(({ id }) => id !== tree.id);
          if (stored.length === 0) {
            if (former !== undefined) this.#former.set(tree.id, former);
            return others;
          }
          const { title, isPinned, createdAt } = former ?? { title: titleOf(stored), isPinned: false, createdAt: now };
          const { id, model } = tree;
          return [...others, { id, title, isPinned, model, createdAt, updatedAt: now, turns: stored }];
        },
        byId,
        [tree.id],
      );
    });
  }

  /**
   * Adds conversations from elsewhere, as long as nothing must go for them.
   *
   * @param {readonly ConversationRecord[]} added
   * @param {ReadonlyMap<string, Blob>} pictures
   * @throws {HistoryError}  If there is no room.
   */
  async add(added, pictures) {
    await this.#enqueue(async () => {
      await this.#update(
        (records) => {
          const all = [...records, ...added];
          const excess = findExcess(all, this.#limits);
          if (excess !== null) throw new HistoryError(`There is no room: ${excess} Delete some first.`);
          return all;
        },
        pictures,
        added.map(({ id }) => id),
      );
    });
  }

  /**
   * @param {string} id
   * @param {Partial<Pick<ConversationRecord, "title" | "isPinned">>} changes
   */
  async change(id, changes) {
    const { title, ...rest } = changes;
    const valid = title === undefined || title.trim() === "" ? rest : { ...rest, title: shorten(title) };
    await this.#enqueue(() =>
      this.#update(
        (records) => records.map((record) => (record.id === id ? { ...record, ...valid } : record)),
        new Map(),
        [id],
      ),
    );
  }

  /**
   * Returns a function that brings it back.
   *
   * @param {string} id
   * @returns {Promise<() => Promise<void>>}
   */
  async remove(id) {
    const record = this.#records.find((each) => each.id === id);
    if (record === undefined) return async () => {};
    const pictures = await this.readPictures(record);
    this.#deletedIds.add(id);
    await this.#enqueue(() => this.#update((records) => records.filter((each) => each.id !== id), new Map(), [id]));
    return async () => {
      this.#deletedIds.delete(id);
      await this.add([record], pictures);
    };
  }

  /**
   * @param {(records: readonly ConversationRecord[]) => readonly ConversationRecord[]} change
   * @param {ReadonlyMap<string, Blob>} pictures
   * @param {readonly string[]} changedIds
   */
  async #update(change, pictures, changedIds) {
    /** @type {readonly ConversationRecord[]} */
    let evicted = [];
    try {
      this.#records = await this.#database.update((records) => {
        const bounded = evict(change(records), this.#limits, changedIds);
        evicted = bounded.evicted;
        return bounded.kept;
      }, pictures);
    } catch (error) {
      if (error instanceof HistoryError) throw error;
      throw new HistoryError(`The browser does not save this conversation: ${String(error)}`, { cause: error });
    }
    this.#on.change();
    this.#channel.postMessage(changedIds);
    if (evicted.length > 0)
      this.#on.evicted(
        evicted.map(({ title }) => title),
        this.#limits,
      );
  }

  /** @param {() => Promise<void>} change */
  async #enqueue(change) {
    const done = this.#last.then(change);
    this.#last = done.catch(() => {});
    await done;
  }
}

/**
 * @param {readonly ConversationRecord[]} records
 * @param {Limits} limits
 * @param {readonly string[]} changedIds  Stay.
 * @throws {HistoryError}  If everything else is pinned.
 */
function evict(records, limits, changedIds) {
  let kept = records;
  for (let excess = findExcess(kept, limits); excess !== null; excess = findExcess(kept, limits)) {
    const candidates = kept.filter(({ id, isPinned }) => !isPinned && !changedIds.includes(id));
    const [oldest] = candidates.toSorted((one, other) => one.updatedAt - other.updatedAt);
    if (oldest === undefined) throw new HistoryError(`This conversation is not saved: ${excess} Delete or unpin some.`);
    kept = kept.filter((record) => record !== oldest);
  }
  return { kept, evicted: records.filter((record) => !kept.includes(record)) };
}

/**
 * Null if they are within the limits.
 *
 * @param {readonly ConversationRecord[]} records
 * @param {Limits} limits
 */
function findExcess(records, { maxConversations, maxBytes }) {
  if (records.length > maxConversations) {
    return `there would be ${records.length} conversations, and this browser keeps at most ${maxConversations}.`;
  }
  const pictures = new Map(
    records.flatMap(({ turns }) => turns.flatMap(({ pictures }) => pictures.map(({ id, numBytes }) => [id, numBytes]))),
  );
  const numTextCharacters = records.flatMap(({ turns }) => turns).reduce((sum, turn) => sum + numCharactersOf(turn), 0);
  const numBytes = [...pictures.values()].reduce((sum, numBytes) => sum + numBytes, numTextCharacters);
  if (numBytes <= maxBytes) return null;
  return `there would be ${formatMegabytes(numBytes)}, and this browser keeps at most ${formatMegabytes(maxBytes)}.`;
}

/** @param {StoredTurn} turn */
function numCharactersOf({ question, answer }) {
  return question.length + answer.length;
}

/** @param {number} numBytes */
export function formatMegabytes(numBytes) {
  return `${(numBytes / 1e6).toFixed(1)} MB`;
}

/**
 * @param {readonly Turn[]} turns
 * @returns {Promise<Map<Picture, PictureBytes>>}
 */
async function readBlobs(turns) {
  const pictures = [...new Set(turns.flatMap(({ question }) => question.pictures))];
  return new Map(
    await Promise.all(pictures.map(async (picture) => /** @type {const} */ ([picture, await readBytes(picture)]))),
  );
}

/**
 * @param {Turn} turn
 * @param {ReadonlyMap<Picture, PictureBytes>} blobs
 * @returns {StoredTurn}
 */
function toStored({ id, parentId, question, answer, ending, isShown }, blobs) {
  const pictures = question.pictures.flatMap((picture) => {
    const bytes = blobs.get(picture);
    return bytes === undefined ? [] : [{ id: bytes.id, name: picture.name, numBytes: bytes.blob.size }];
  });
  return { id, parentId, question: question.question, pictures, answer, ending, isShown };
}

/** @param {readonly Pick<StoredTurn, "question" | "pictures">[]} turns */
function titleOf([first]) {
  return shorten(first?.question || first?.pictures[0]?.name || "Conversation");
}

/** @param {string} title */
function shorten(title) {
  const line = title.trim().replaceAll(/\s+/g, " ");
  return line.length <= MAX_TITLE_LENGTH ? line : `${line.slice(0, MAX_TITLE_LENGTH - 1)}…`;
}
