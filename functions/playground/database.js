/** Conversations and their pictures in IndexedDB, or in memory where the browser keeps nothing. */

/**
 * @typedef {object} StoredPicture
 * @property {string} id
 * @property {string} name
 * @property {number} numBytes
 */

/**
 * @typedef {object} StoredTurn
 * @property {string} id
 * @property {string | null} parentId
 * @property {string} question
 * @property {readonly StoredPicture[]} pictures
 * @property {string} answer
 * @property {string | null} ending
 * @property {boolean} isShown
 */

/**
 * Immutable.
 *
 * @typedef {object} ConversationRecord
 * @property {string} id
 * @property {string} title
 * @property {boolean} isPinned
 * @property {string} model
 * @property {number} createdAt  Milliseconds since 1970, here and below.
 * @property {number} updatedAt
 * @property {readonly StoredTurn[]} turns
 */

/** @typedef {(records: readonly ConversationRecord[]) => readonly ConversationRecord[]} Change */

/**
 * @typedef {object} Database
 * @property {boolean} isLasting  Whether what it keeps outlasts the page.
 * @property {() => Promise<readonly ConversationRecord[]>} readRecords
 * @property {(ids: readonly string[]) => Promise<Map<string, Blob>>} readPictures  Those that there are.
 * @property {(change: Change, pictures?: ReadonlyMap<string, Blob>) => Promise<readonly ConversationRecord[]>} update
 *   Replaces all records in one transaction, which may run beside other tabs. Pictures that no record names any more are
 *   deleted. If `change` throws, nothing is changed.
 */

const storeNames = ["conversations", "pictures"];

/** @returns {Promise<Database>} */
export async function openDatabase(name = "fovea") {
  try {
    return createIndexedDatabase(await open(name));
  } catch {
    // For example a private window.
    return createMemoryDatabase();
  }
}

/** @param {string} name */
async function open(name) {
  const request = indexedDB.open(name, 1);
  request.addEventListener("upgradeneeded", () => {
    request.result.createObjectStore("conversations", { keyPath: "id" });
    request.result.createObjectStore("pictures");
  });
  return resultOf(request);
}

/**
 * @param {IDBDatabase} database
 * @returns {Database}
 */
function createIndexedDatabase(database) {
  return {
    isLasting: true,

    async readRecords() {
      return resultOf(database.transaction("conversations").objectStore("conversations").getAll());
    },

    async readPictures(ids) {
      const store = database.transaction("pictures").objectStore("pictures");
      const blobs = await Promise.all(
        ids.map(async (id) => /** @type {const} */ ([id, await resultOf(store.get(id))])),
      );
      return new Map(blobs.filter(([, blob]) => blob !== undefined));
    },

    async update(change, pictures = new Map()) {
      const transaction = database.transaction(storeNames, "readwrite");
      const done = completionOf(transaction);
      const records = transaction.objectStore("conversations");
      const blobs = transaction.objectStore("pictures");
      try {
        /** @type {ConversationRecord[]} */
        const before = await resultOf(records.getAll());
        const kept = new Set(/** @type {string[]} */ (await resultOf(blobs.getAllKeys())));
        const after = change(before);
        for (const { id } of difference(before, after)) records.delete(id);
        for (const record of difference(after, before)) records.put(record);
        const used = usedPictures(after);
        for (const id of kept) if (!used.has(id)) blobs.delete(id);
        for (const [id, blob] of pictures) if (used.has(id) && !kept.has(id)) blobs.put(blob, id);
        await done;
        return after;
      } catch (error) {
        tryAbort(transaction);
        await done.catch(() => {});
        throw error;
      }
    },
  };
}

/** @returns {Database} */
function createMemoryDatabase() {
  /** @type {readonly ConversationRecord[]} */
  let records = [];
  /** @type {Map<string, Blob>} */
  const blobs = new Map();
  return {
    isLasting: false,
    readRecords: async () => records,
    readPictures: async (ids) => new Map([...blobs].filter(([id]) => ids.includes(id))),
    async update(change, pictures = new Map()) {
      records = change(records);
      const used = usedPictures(records);
      for (const [id, blob] of pictures) blobs.set(id, blob);
      for (const id of blobs.keys()) if (!used.has(id)) blobs.delete(id);
      return records;
    },
  };
}

/**
 * Those of `records` that `others` lacks.
 *
 * @param {readonly ConversationRecord[]} records
 * @param {readonly ConversationRecord[]} others
 */
function difference(records, others) {
  const known = new Set(others);
  return records.filter((record) => !known.has(record));
}

/** @param {readonly ConversationRecord[]} records */
function usedPictures(records) {
  return new Set(records.flatMap(({ turns }) => turns.flatMap(({ pictures }) => pictures.map(({ id }) => id))));
}

/**
 * @template Result
 * @param {IDBRequest<Result>} request
 * @returns {Promise<Result>}
 */
async function resultOf(request) {
  /** @type {PromiseWithResolvers<Result>} */
  const { promise, resolve, reject } = Promise.withResolvers();
  request.addEventListener("success", () => resolve(request.result));
  request.addEventListener("error", () => reject(request.error));
  return promise;
}

/** @param {IDBTransaction} transaction */
async function completionOf(transaction) {
  /** @type {PromiseWithResolvers<void>} */
  const { promise, resolve, reject } = Promise.withResolvers();
  transaction.addEventListener("complete", () => resolve());
  transaction.addEventListener("abort", () => reject(transaction.error ?? new Error("The transaction was aborted.")));
  return promise;
}

/** @param {IDBTransaction} transaction */
function tryAbort(transaction) {
  try {
    transaction.abort();
  } catch {
    // It has ended by itself.
  }
}
