/**
 * The list of saved conversations. It is one stop of the tab key: arrow keys move between conversations, and the next
 * stops are the buttons of the conversation that has the focus. F2 renames it, Delete deletes it.
 */
import { create, find, fromTemplate } from "./elements.js";

/** @import { ConversationRecord } from "./database.js" */

/** @typedef {"open" | "pin" | "rename" | "export" | "remove"} RowAction */

/** How names for screen readers begin; the title follows. @type {Readonly<Partial<Record<RowAction, string>>>} */
const names = { pin: "Pin", rename: "Rename", export: "Export", remove: "Delete" };

/**
 * @param {object} options
 * @param {HTMLElement} options.list
 * @param {Readonly<Record<RowAction, (record: ConversationRecord) => void>>} options.on
 * @param {(record: ConversationRecord, title: string) => void} options.onTitle  A new title was entered.
 */
export function createHistoryList({ list, on, onTitle }) {
  /** @type {readonly ConversationRecord[]} */
  let records = [];
  /** The open conversation. */
  let openId = "";
  /** Of the row that had the focus last, or else of the open conversation. */
  let activeId = "";
  /** A row whose title is being edited is not replaced. */
  let isRenaming = false;

  function render() {
    if (isRenaming) return;
    const focused = document.activeElement;
    const focusedId = rowOf(focused)?.dataset.id;
    const action = focused instanceof HTMLElement ? focused.dataset.action : undefined;
    list.replaceChildren(...records.map(createRow));
    showReachable();
    if (focusedId !== undefined) focus(focusedId, action);
  }

  /** @param {ConversationRecord} record */
  function createRow(record) {
    const row = fromTemplate("history-template", HTMLLIElement);
    row.dataset.id = record.id;
    for (const button of row.querySelectorAll("button")) {
      const action = /** @type {RowAction} */ (button.dataset.action);
      button.addEventListener("click", () => on[action](record));
      if (action === "open") Object.assign(button, { textContent: record.title, title: record.title });
      else button.setAttribute("aria-label", `${names[action]} ${record.title}`);
      if (action === "open" && record.id === openId) button.setAttribute("aria-current", "true");
      if (action === "pin") button.setAttribute("aria-pressed", String(record.isPinned));
    }
    return row;
  }

  /** The active row's id, or where the list lacks it, that of the open conversation or of the first row. */
  function reachableId() {
    return [activeId, openId].find((id) => records.some((record) => record.id === id)) ?? records[0]?.id ?? "";
  }

  /** Lets the tab key reach one row. */
  function showReachable() {
    const id = reachableId();
    for (const row of rows()) {
      for (const button of row.querySelectorAll("button")) button.tabIndex = row.dataset.id === id ? 0 : -1;
    }
  }

  function rows() {
    return [...list.children].filter((child) => child instanceof HTMLElement);
  }

  /**
   * @param {string} id
   * @param {string} [action]
   */
  function focus(id, action = "open") {
    const row = rows().find((each) => each.dataset.id === id);
    if (row !== undefined) find(row, `[data-action=${action}]`, HTMLButtonElement).focus();
  }

  /**
   * Edits the title in place.
   *
   * @param {ConversationRecord} record
   */
  function rename(record) {
    const row = rows().find((each) => each.dataset.id === record.id);
    if (row === undefined || isRenaming) return;
    const input = create("input", { className: "history-rename", value: record.title });
    input.setAttribute("aria-label", `New title of ${record.title}`);
    isRenaming = true;
    row.replaceChildren(input);
    input.focus();
    input.select();
    /** @param {boolean} isKept */
    const end = (isKept) => {
      if (!isRenaming) return;
      const hadFocus = document.activeElement === input;
      isRenaming = false;
      render();
      if (hadFocus) focus(record.id);
      if (isKept && input.value.trim() !== record.title) onTitle(record, input.value);
    };
    input.addEventListener("blur", () => end(true));
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      const isEnter = event.key === "Enter" && !event.isComposing;
      if (!isEnter && event.key !== "Escape") return;
      // Otherwise the key would also press the button that gets the focus.
      event.preventDefault();
      end(isEnter);
    });
  }

  list.addEventListener("focusin", ({ target }) => {
    const id = target instanceof Element ? rowOf(target)?.dataset.id : undefined;
    if (id === undefined || isRenaming) return;
    activeId = id;
    showReachable();
  });
  list.addEventListener("keydown", (event) => {
    const row = event.target instanceof Element ? rowOf(event.target) : null;
    const all = rows();
    const record = records.find(({ id }) => id === row?.dataset.id);
    if (row === null || record === undefined) return;
    const index = all.indexOf(row);
    const targets = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: all.length - 1 };
    const next = event.key in targets ? all[targets[/** @type {keyof typeof targets} */ (event.key)]] : undefined;
    if (next?.dataset.id !== undefined) focus(next.dataset.id);
    else if (event.key === "F2") rename(record);
    else if (event.key === "Delete") on.remove(record);
    else return;
    event.preventDefault();
  });

  return {
    focus,
    rename,
    focusActive: () => focus(reachableId()),

    /**
     * @param {readonly ConversationRecord[]} shown
     * @param {string} open  The id of the open conversation.
     */
    show(shown, open) {
      if (open !== openId) activeId = open;
      records = shown;
      openId = open;
      render();
    },
  };
}

/**
 * @param {Element | null} element
 * @returns {HTMLElement | null}
 */
function rowOf(element) {
  return element?.closest("[data-id]") ?? null;
}
