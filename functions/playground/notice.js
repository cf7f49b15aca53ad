/** A notice at the top of the page, with a button to undo where something can be undone. It stays until it is closed. */
import { find } from "./elements.js";

/** @typedef {ReturnType<typeof createNotice>} Notice */

/** @param {(text: string) => void} announce */
export function createNotice(announce) {
  const element = find(document, "#notice", HTMLElement);
  const undo = find(element, "#notice-undo", HTMLButtonElement);
  /** @type {(() => void) | null} */
  let undoShown = null;
  /** Moves the focus when its button is gone. */
  let moveFocus = () => {};

  function hide() {
    element.hidden = true;
    undoShown = null;
  }

  function dismiss() {
    const hadFocus = element.contains(document.activeElement);
    hide();
    if (hadFocus) moveFocus();
  }

  undo.addEventListener("click", () => {
    const action = undoShown;
    hide();
    action?.();
  });
  find(element, "#notice-close", HTMLButtonElement).addEventListener("click", dismiss);
  element.addEventListener("keydown", ({ key }) => {
    if (key === "Escape") dismiss();
  });

  return {
    /**
     * @param {string} text
     * @param {() => void} focusAfter  Moves the focus when the notice is closed.
     * @param {() => void} [onUndo]  Then the focus moves to the button that undoes.
     */
    show(text, focusAfter, onUndo) {
      moveFocus = focusAfter;
      find(element, "#notice-text", HTMLElement).textContent = text;
      undoShown = onUndo ?? null;
      undo.hidden = onUndo === undefined;
      element.hidden = false;
      announce(text);
      if (onUndo) undo.focus();
    },

    /** Closes a notice that offers to undo: after another change, undoing would be wrong. */
    forgetUndo() {
      if (undoShown !== null) hide();
    },
  };
}
