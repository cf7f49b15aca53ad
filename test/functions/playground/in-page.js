/** Code that tests run within the page. JavaScript, because it is checked with the page's types and not with Node's. */

/**
 * Hands a file to the page as a drop or a paste does.
 *
 * @param {{ how: "drop" | "paste", name: string, type: string, base64: string }} file
 */
export function giveFile({ how, name, type, base64 }) {
  const transfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  transfer.items.add(new File([bytes], name, { type }));
  const options = { bubbles: true, cancelable: true };
  document.body.dispatchEvent(
    how === "drop"
      ? new DragEvent("drop", { ...options, dataTransfer: transfer })
      : new ClipboardEvent("paste", { ...options, clipboardData: transfer }),
  );
}

/** Pixels by which the page is wider than the window. */
export function measureOverhang() {
  return document.documentElement.scrollWidth - window.innerWidth;
}

export function readFocusedId() {
  return document.activeElement?.id ?? "";
}

export function readClipboard() {
  return navigator.clipboard.readText();
}

/** The label or the text of the element that has the focus, or else its id. */
export function readFocusedName() {
  const focused = document.activeElement;
  return focused?.getAttribute("aria-label") ?? (focused?.textContent.trim() || focused?.id) ?? "";
}
