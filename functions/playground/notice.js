/** A notice at the top of the page, with a button to undo where something can be undone. It stays until it is closed. */
import { find } from "./elements.js";

/** @typedef {ReturnType<typeof createNotice>} Notice */

/**
 * @param {object} options
 * @param {(text: string) => void} options.announce
 * @param {() => void} options.onDismiss  The button that had the focus is gone.
 */
export function createNotice({ announce, onDismiss }) {
  const element = find(document, "#notice", HTMLElement);
  const undo = find(element, "#notice-undo", HTMLButtonElement);
  /** @type {(() => void) | null} */
  let undoShown = null;

  function hide() {
    element.hidden = true;
    undoShown = null;
  }

  function dismiss() {
    hide();
    onDismiss();
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
    hide,

    /**
     * @param {string} text
     * @param {() => void} [onUndo]  Then the focus moves to the button that undoes.
     */
    show(text, onUndo) {
      find(element, "#notice-text", HTMLElement).textContent = text;
      undoShown = onUndo ?? null;
      undo.hidden = onUndo === undefined;
      element.hidden = false;
      announce(text);
      if (onUndo) undo.focus();
    },

    /** What was deleted can no longer be brought back. */
    forgetUndo() {
      if (undoShown !== null) hide();
    },
  };
}
