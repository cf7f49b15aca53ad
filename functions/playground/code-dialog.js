/** The dialog that shows a request as code to copy. */
import { shortenPictures, toCode } from "./code-samples.js";
import { find } from "./elements.js";

/** @import { ChatRequest } from "./chat-request.js" */
/** @import { CodeKind, Target } from "./code-samples.js" */

/** @param {() => Target} readTarget */
export function createCodeDialog(readTarget) {
  const dialog = find(document, "#code-dialog", HTMLDialogElement);
  const text = find(dialog, "#code-text", HTMLElement);
  const copy = find(dialog, "#code-copy", HTMLButtonElement);
  const kinds = [...dialog.querySelectorAll("button[data-kind]")];
  /** @type {CodeKind} */
  let kind = "curl";
  /** @type {ChatRequest | null} */
  let shown = null;

  function render() {
    if (shown === null) return;
    const code = toCode(kind, shown, readTarget());
    const shortened = shortenPictures(code);
    text.textContent = shortened;
    copy.textContent = "Copy";
    find(dialog, "#code-note", HTMLElement).hidden = shortened === code;
    for (const button of kinds) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-kind") === kind));
    }
  }

  for (const button of kinds) {
    button.addEventListener("click", () => {
      kind = /** @type {CodeKind} */ (button.getAttribute("data-kind"));
      render();
    });
  }
  async function copyShown() {
    if (shown === null) return;
    copy.textContent = (await tryCopy(toCode(kind, shown, readTarget()), dialog)) ? "Copied" : "Not copied";
  }

  copy.addEventListener("click", () => void copyShown());
  find(dialog, "#code-close", HTMLButtonElement).addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", ({ target }) => {
    if (target === dialog) dialog.close();
  });

  return {
    /** @param {ChatRequest} request */
    show(request) {
      shown = request;
      render();
      dialog.showModal();
    },
  };
}

/**
 * Whether the text is in the clipboard. Pages that do not come over https or from this machine have no clipboard of
 * their own, but can copy what is selected.
 *
 * @param {string} text
 * @param {HTMLElement} parent  Where the selection may be: outside of an open dialog nothing can be.
 */
async function tryCopy(text, parent) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Not allowed here; copying the selection may be.
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  parent.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}
