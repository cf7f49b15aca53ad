/** The pictures, videos and documents of the next question: chosen, dropped or pasted, shown small, each with a button to remove it. */
import { create } from "./elements.js";
import { toDataUrl } from "./picture-bytes.js";
import { createPreview } from "./preview.js";

/** @import { Picture } from "./chat-request.js" */

/**
 * @param {object} options
 * @param {HTMLElement} options.list  Takes an item for each picture.
 * @param {() => boolean} options.acceptsVideos
 * @param {(message: string) => void} options.onProblem  Names files that cannot be sent; empty if there are none.
 * @param {() => void} options.onRemove  The button that had the focus is gone.
 */
export function createPictureTray({ list, acceptsVideos, onProblem, onRemove }) {
  /** @type {Map<Picture, HTMLElement>} */
  const items = new Map();
  /** @type {Set<Promise<void>>} */
  const reading = new Set();

  /** @param {Picture} picture */
  function add(picture) {
    const remove = create("button", { type: "button", className: "remove", textContent: "×" });
    remove.setAttribute("aria-label", `Remove ${picture.name}`);
    remove.addEventListener("click", () => {
      items.get(picture)?.remove();
      items.delete(picture);
      onRemove();
    });
    const item = create("li", {}, [createPreview(picture, { hasControls: false }), remove]);
    items.set(picture, item);
    list.append(item);
  }

  /** @param {readonly File[]} files */
  async function addAll(files) {
    const pictures = await Promise.all(files.map(readPicture));
    pictures.forEach(add);
  }

  return {
    add,

    /** @param {Iterable<File>} files */
    async addFiles(files) {
      const all = [...files];
      const accepted = acceptsVideos() ? /^(image\/|video\/|application\/pdf$)/ : /^(image\/|application\/pdf$)/;
      const others = all.filter(({ type }) => !accepted.test(type));
      const problem = acceptsVideos() ? "not a picture, a video or a PDF" : "neither a picture nor a PDF";
      onProblem(others.length === 0 ? "" : `${others.map(({ name }) => name).join(", ")}: ${problem}.`);
      const added = addAll(all.filter((file) => !others.includes(file)));
      reading.add(added);
      try {
        await added;
      } finally {
        reading.delete(added);
      }
    },

    /** Resolves when all files that were given are among the pictures; rejects if one cannot be read. */
    async whenRead() {
      await Promise.all(reading);
    },

    /** @returns {readonly Picture[]} */
    get pictures() {
      return [...items.keys()];
    },

    clear() {
      items.clear();
      list.replaceChildren();
    },
  };
}

/**
 * @param {Blob} file
 * @returns {Promise<Picture>}
 */
export async function readPicture(file) {
  return { name: file instanceof File ? file.name : "picture", url: await toDataUrl(file) };
}

/**
 * Files that are dropped anywhere on the page or pasted into it.
 *
 * @param {HTMLElement} veil  Shown while files are dragged over the page.
 * @param {(files: FileList) => void} onFiles
 */
export function receiveFiles(veil, onFiles) {
  /** @param {DragEvent} event */
  const hasFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files") ?? false;
  window.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    veil.hidden = false;
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) veil.hidden = true;
  });
  window.addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!event.dataTransfer || !hasFiles(event)) return;
    event.preventDefault();
    onFiles(event.dataTransfer.files);
  });
  window.addEventListener("paste", ({ clipboardData }) => {
    if (clipboardData && clipboardData.files.length > 0) onFiles(clipboardData.files);
  });
}
