/** Code that tests run within the page. JavaScript, because it is checked with the page's types and not with Node's. */

/**
 * Hands a file to the page as a drop or a paste does, and with `asks` sends the question before the page has read it.
 *
 * @param {{ how: "drop" | "paste", name: string, type: string, base64: string, asks?: boolean }} file
 */
export function giveFile({ how, name, type, base64, asks = false }) {
  const transfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  transfer.items.add(new File([bytes], name, { type }));
  const options = { bubbles: true, cancelable: true };
  document.body.dispatchEvent(
    how === "drop"
      ? new DragEvent("drop", { ...options, dataTransfer: transfer })
      : new ClipboardEvent("paste", { ...options, clipboardData: transfer }),
  );
  if (asks) document.forms.namedItem("composer")?.requestSubmit();
}

/** Pixels by which the page is wider than the window. */
export function measureOverhang() {
  return document.documentElement.scrollWidth - window.innerWidth;
}

export function readFocusedId() {
  return document.activeElement?.id ?? "";
}

/**
 * In pixels of the video; 0 until the browser knows it.
 *
 * @param {Element} video
 */
export function readVideoWidth(video) {
  return video instanceof HTMLVideoElement ? video.videoWidth : 0;
}

export function readClipboard() {
  return navigator.clipboard.readText();
}

/** The label or the text of the element that has the focus, or else its id. */
export function readFocusedName() {
  const focused = document.activeElement;
  return focused?.getAttribute("aria-label") ?? (focused?.textContent.trim() || focused?.id) ?? "";
}

/** All that the page has stored, as text; pictures as their types and sizes. */
export async function readStorage() {
  const request = indexedDB.open("fovea");
  /** @type {PromiseWithResolvers<IDBDatabase>} */
  const opened = Promise.withResolvers();
  request.addEventListener("success", () => opened.resolve(request.result));
  const database = await opened.promise;
  const readAll = async (/** @type {string} */ name) => {
    const all = database.transaction(name).objectStore(name).getAll();
    /** @type {PromiseWithResolvers<unknown[]>} */
    const read = Promise.withResolvers();
    all.addEventListener("success", () => read.resolve(all.result));
    return read.promise;
  };
  const conversations = await readAll("conversations");
  const pictures = (await readAll("pictures")).map((blob) =>
    blob instanceof Blob ? `${blob.type} of ${blob.size} bytes` : "no blob",
  );
  database.close();
  return {
    conversations: JSON.stringify(conversations),
    pictures,
    local: JSON.stringify(Object.entries(localStorage)),
  };
}

/**
 * Replaces what is stored by conversations "Old 0", "Old 1" and so on, the first the oldest.
 *
 * @param {{ numConversations: number, numPinned: number }} options
 */
export async function storeConversations({ numConversations, numPinned }) {
  const request = indexedDB.open("fovea");
  /** @type {PromiseWithResolvers<IDBDatabase>} */
  const opened = Promise.withResolvers();
  request.addEventListener("success", () => opened.resolve(request.result));
  const database = await opened.promise;
  const transaction = database.transaction("conversations", "readwrite");
  const store = transaction.objectStore("conversations");
  store.clear();
  const turn = { id: "t", parentId: null, question: "?", pictures: [], answer: "!", ending: "stop", isShown: true };
  for (let index = 0; index < numConversations; index++) {
    const times = { createdAt: index, updatedAt: index };
    const isPinned = index < numPinned;
    store.put({ id: `old${index}`, title: `Old ${index}`, isPinned, model: "tiny", ...times, turns: [turn] });
  }
  const stored = Promise.withResolvers();
  transaction.addEventListener("complete", stored.resolve);
  await stored.promise;
  database.close();
}

/** As in a browser that refuses to store anything. */
export function refuseStorage() {
  Object.defineProperty(IDBFactory.prototype, "open", {
    value() {
      throw new DOMException("Not here.", "SecurityError");
    },
  });
}
