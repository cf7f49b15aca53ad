/**
 * Connects the page's conversation with the saved ones: saves it as it changes, opens others, and keeps the address of
 * the open one, so that the page comes back to it after a reload.
 */
import { FileError } from "./conversation-file.js";
import { exportConversations, importConversations } from "./conversation-transfer.js";
import { createHistoryPanel } from "./history-panel.js";
import { History, HistoryError } from "./history.js";

/** @import { Conversation } from "./conversation.js" */
/** @import { ConversationRecord, Database } from "./database.js" */
/** @import { Notice } from "./notice.js" */
/** @import { TurnTree } from "./turn-tree.js" */

/** @typedef {ReturnType<typeof createSavedConversations>} SavedConversations */

const pageTitle = document.title;

/**
 * @param {object} options
 * @param {Database} options.database
 * @param {Conversation} options.conversation
 * @param {Notice} options.notice
 * @param {(tree?: TurnTree) => void} options.onOpen  Shows a saved conversation, or a new one.
 * @param {() => void} options.focusConversation
 */
export function createSavedConversations({ database, conversation, notice, onOpen, focusConversation }) {
  const panel = createHistoryPanel({
    row: {
      open: (record) => void openByReader(record.id),
      pin: (record) => void attempt(() => history.change(record.id, { isPinned: !record.isPinned })),
      export: ({ id }) => void attempt(() => exportRecords((record) => record.id === id)),
      remove: (record) => void attempt(() => remove(record)),
    },
    title: (record, title) => void attempt(() => history.change(record.id, { title })),
    importFile: (file) => void attempt(() => importFile(file)),
    exportAll: () => void attempt(() => exportRecords(() => true)),
  });
  const history = new History({
    database,
    on: {
      change: render,
      otherTab(ids) {
        if (ids.includes(conversation.tree.id) && !conversation.isStreaming) void open(conversation.tree.id);
      },
      evicted(titles, { maxConversations }) {
        const quoted = titles.map((title) => `“${title}”`).join(", ");
        const bound = `This browser keeps at most ${maxConversations} conversations, and a limited size of pictures.`;
        notice.show(`${bound} Deleted as the oldest: ${quoted}. Pin conversations to keep them.`, focusList);
      },
    },
  });

  const focusList = () => panel.focusList();

  function render() {
    const { records } = history;
    const { id } = conversation.tree;
    panel.show(records, id);
    const title = records.find((record) => record.id === id)?.title;
    document.title = title === undefined ? pageTitle : `${title} – ${pageTitle}`;
  }

  /** @param {string} id */
  async function open(id) {
    const tree = await history.open(id);
    if (tree !== null) onOpen(tree);
    return tree !== null;
  }

  /** @param {string} id */
  async function openByReader(id) {
    if (id !== conversation.tree.id && (await open(id))) window.history.pushState(null, "", `#${id}`);
    panel.closeDrawer();
    focusConversation();
  }

  /** Opens the conversation of the address, or a new one if there is none. */
  async function openAddress() {
    const id = location.hash.slice(1);
    if (id === conversation.tree.id) return;
    if (!(await open(id)) && !conversation.isEmpty) onOpen();
  }

  /** @param {ConversationRecord} record */
  async function remove(record) {
    const undo = await history.remove(record.id);
    if (record.id === conversation.tree.id) openNew();
    notice.show(`“${record.title}” is deleted.`, focusList, () => {
      void attempt(async () => {
        await undo();
        panel.focus(record.id);
      });
    });
  }

  function openNew() {
    onOpen();
    window.history.pushState(null, "", location.pathname + location.search);
    render();
  }

  /** What the page shows may still be on its way to the database. */
  let saving = Promise.resolve();

  /** @param {(record: ConversationRecord) => boolean} isChosen */
  async function exportRecords(isChosen) {
    await saving;
    const numMissing = await exportConversations(history.records.filter(isChosen), history);
    if (numMissing > 0)
      notice.show(
        `The file lacks ${count(numMissing, "attachment")} that this browser cannot convert to JPEG.`,
        focusList,
      );
  }

  /** @param {File} file */
  async function importFile(file) {
    const numConversations = await importConversations(file, history);
    notice.show(`${count(numConversations, "conversation")} imported.`, focusList);
  }

  /** @param {() => Promise<void>} action */
  async function attempt(action) {
    try {
      await action();
    } catch (error) {
      if (!(error instanceof HistoryError || error instanceof FileError)) throw error;
      notice.show(error.message, focusList);
    }
  }

  window.addEventListener("popstate", () => void openAddress());
  panel.showStorage(database.isLasting);

  return {
    render,
    openNew,

    /** Opens the conversation whose address the page has. */
    async restore() {
      await attempt(async () => {
        await history.load();
        await openAddress();
      });
    },

    /** @param {TurnTree} tree */
    async save(tree) {
      saving = attempt(() => history.save(tree));
      await saving;
      const isOpen = tree === conversation.tree && history.records.some(({ id }) => id === tree.id);
      if (isOpen) window.history.replaceState(null, "", `#${tree.id}`);
    },
  };
}

/**
 * @param {number} number
 * @param {string} noun
 */
function count(number, noun) {
  return number === 1 ? `1 ${noun}` : `${number} ${noun}s`;
}
