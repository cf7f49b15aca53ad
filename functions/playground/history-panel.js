/** The panel of saved conversations: a column that is open at first, or a drawer where there is no room for a column. */
import { find } from "./elements.js";
import { createHistoryList } from "./history-list.js";

/** @import { ConversationRecord } from "./database.js" */
/** @import { RowAction } from "./history-list.js" */

/** As in history.css. */
const hasRoom = matchMedia("(min-width: 70rem)");

/**
 * @param {object} on
 * @param {Readonly<Record<Exclude<RowAction, "rename">, (record: ConversationRecord) => void>>} on.row
 * @param {(record: ConversationRecord, title: string) => void} on.title
 * @param {(file: File) => void} on.importFile
 * @param {() => void} on.exportAll
 */
export function createHistoryPanel(on) {
  const panel = find(document, "#history", HTMLElement);
  const toggle = find(document, "#history-toggle", HTMLButtonElement);
  const search = find(panel, "#history-search", HTMLInputElement);
  const exportAll = find(panel, "#export-all", HTMLButtonElement);
  const importFile = find(panel, "#import-file", HTMLInputElement);
  const behind = [find(document, "main", HTMLElement), find(document, "#settings", HTMLElement)];
  /** @type {readonly ConversationRecord[]} */
  let records = [];
  let openId = "";
  const list = createHistoryList({
    list: find(panel, "#history-list", HTMLElement),
    on: { ...on.row, rename: (record) => list.rename(record) },
    onTitle: on.title,
  });

  /** @param {boolean} isOpen */
  function open(isOpen) {
    panel.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
    // The drawer covers these elements, so the keyboard must not reach them.
    for (const element of behind) element.inert = isOpen && !hasRoom.matches;
    find(document, "#history-veil", HTMLElement).hidden = !isOpen || hasRoom.matches;
  }

  function close() {
    open(false);
    toggle.focus();
  }

  function render() {
    const words = search.value.trim().toLowerCase();
    const found = words === "" ? records : records.filter((record) => contains(record, words));
    list.show(found, openId);
    exportAll.disabled = records.length === 0;
    search.hidden = records.length === 0;
    find(panel, "#history-none", HTMLElement).hidden = records.length > 0;
    find(panel, "#search-result", HTMLElement).textContent =
      records.length > 0 && found.length === 0 ? "No conversation contains these words." : "";
  }

  toggle.addEventListener("click", () => {
    open(panel.hidden === true);
    if (!panel.hidden && !hasRoom.matches) find(panel, "#history-close", HTMLElement).focus();
  });
  find(panel, "#history-close", HTMLButtonElement).addEventListener("click", close);
  find(document, "#history-veil", HTMLElement).addEventListener("click", close);
  panel.addEventListener("keydown", ({ key }) => {
    if (key === "Escape") close();
  });
  hasRoom.addEventListener("change", () => open(hasRoom.matches));
  search.addEventListener("input", render);
  exportAll.addEventListener("click", on.exportAll);
  find(panel, "#import", HTMLButtonElement).addEventListener("click", () => importFile.click());
  importFile.addEventListener("change", () => {
    const [file] = importFile.files ?? [];
    if (file !== undefined) on.importFile(file);
    // So that the same file can be chosen again.
    importFile.value = "";
  });
  open(hasRoom.matches);

  return {
    /** @param {string} id */
    focus: (id) => list.focus(id),

    /** Or where the focus can go if there is no list. */
    focusList() {
      if (panel.hidden) find(document, "#question", HTMLElement).focus();
      else if (records.length === 0) find(panel, "#history-close", HTMLElement).focus();
      else list.focusActive();
    },

    /** Where the drawer covers the conversation. */
    closeDrawer() {
      if (!hasRoom.matches) open(false);
    },

    /** @param {boolean} isLasting */
    showStorage(isLasting) {
      find(panel, "#history-note", HTMLElement).textContent = isLasting
        ? "Conversations stay in this browser."
        : "This browser keeps nothing for this page. Conversations end when the page is closed.";
    },

    /**
     * @param {readonly ConversationRecord[]} all
     * @param {string} open  The id of the open conversation.
     */
    show(all, open) {
      records = all;
      openId = open;
      render();
    },
  };
}

/**
 * @param {ConversationRecord} record
 * @param {string} words  In lower case.
 */
function contains({ title, turns }, words) {
  return [title, ...turns.flatMap(({ question, answer }) => [question, answer])].some((text) =>
    text.toLowerCase().includes(words),
  );
}
