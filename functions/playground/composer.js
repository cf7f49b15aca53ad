/** The form for a question: its text, its pictures, videos and documents, the buttons to send and stop, and suggested questions. */
import { find } from "./elements.js";
import { createQuestionButton } from "./examples.js";
import { createPictureTray, receiveFiles } from "./picture-tray.js";

/** @import { Question } from "./chat-request.js" */
/** @import { Turn } from "./turn-tree.js" */

/**
 * @typedef {object} ComposerState
 * @property {boolean} isReady  The server serves.
 * @property {boolean} isStreaming
 * @property {boolean} acceptsImages
 * @property {boolean} acceptsVideos
 * @property {readonly string[]} suggestions
 */

/**
 * @param {object} on
 * @param {(question: Question, insteadOf: Turn | null) => boolean} on.ask  Returns whether the question was sent; if
 *   not, it stays here.
 * @param {() => void} on.stop
 * @param {(turn: Turn) => void} on.cancelEdit
 * @param {(question: Question) => void} on.code
 */
export function createComposer(on) {
  const form = find(document, "#composer", HTMLFormElement);
  const question = find(form, "#question", HTMLTextAreaElement);
  const send = find(form, "#send", HTMLButtonElement);
  const stop = find(form, "#stop", HTMLButtonElement);
  const suggestionList = find(form, "#suggestions", HTMLElement);
  const choosePictures = find(form, "#choose-pictures", HTMLButtonElement);
  const pictureFiles = find(form, "#picture-files", HTMLInputElement);
  const problem = find(form, "#composer-problem", HTMLElement);
  const editNote = find(form, "#edit-note", HTMLElement);
  /**
   * The turn whose question is edited, and what was written here before.
   *
   * @type {{ readonly turn: Turn, readonly draft: Question } | null}
   */
  let edit = null;
  let takesVideos = false;
  const tray = createPictureTray({
    list: find(form, "#tray", HTMLElement),
    acceptsVideos: () => takesVideos,
    onProblem: showProblem,
    onRemove: () => question.focus(),
  });

  /** @param {string} message  Empty for none. */
  function showProblem(message) {
    problem.textContent = message;
  }

  /** @returns {Question} */
  function read() {
    return { question: question.value.trim(), pictures: tray.pictures };
  }

  /** @param {Question} written */
  function write({ question: text, pictures }) {
    question.value = text;
    tray.clear();
    pictures.forEach(tray.add);
    resize();
  }

  function resize() {
    question.style.setProperty("height", "auto");
    question.style.setProperty("height", `${question.scrollHeight}px`);
  }

  function endEdit() {
    if (edit === null) return;
    write(edit.draft);
    edit = null;
    editNote.hidden = true;
    showProblem("");
  }

  function cancelEdit() {
    if (edit === null) return;
    const { turn } = edit;
    endEdit();
    on.cancelEdit(turn);
  }

  async function submit() {
    try {
      // Reading a large file takes a moment, and the question may be about it.
      await tray.whenRead();
    } catch {
      // The page says so; the question stays.
      return;
    }
    const written = read();
    if (written.question === "" && written.pictures.length === 0) return question.focus();
    if (!on.ask(written, edit?.turn ?? null)) return;
    write({ question: "", pictures: [] });
    endEdit();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void submit();
  });
  find(form, "#edit-cancel", HTMLButtonElement).addEventListener("click", cancelEdit);
  question.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancelEdit();
    // Enter also ends the composition of a character.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  question.addEventListener("input", resize);
  stop.addEventListener("click", () => {
    on.stop();
    question.focus();
  });
  find(form, "#show-code", HTMLButtonElement).addEventListener("click", () => on.code(read()));
  choosePictures.addEventListener("click", () => pictureFiles.click());
  pictureFiles.addEventListener("change", () => {
    void tray.addFiles(pictureFiles.files ?? []);
    // So that the same file can be chosen again.
    pictureFiles.value = "";
    question.focus();
  });
  receiveFiles(find(document, "#drop-veil", HTMLElement), (files) => {
    void tray.addFiles(files);
    question.focus();
  });

  return {
    showProblem,
    write,
    endEdit,

    /**
     * Sending asks the question in place of the turn's.
     *
     * @param {Turn} turn
     */
    edit(turn) {
      endEdit();
      edit = { turn, draft: read() };
      write(turn.question);
      editNote.hidden = false;
      question.focus();
    },

    focus() {
      question.focus();
    },

    /** @param {ComposerState} state */
    show({ isReady, isStreaming, acceptsImages, acceptsVideos, suggestions }) {
      send.hidden = isStreaming;
      send.disabled = !isReady;
      stop.hidden = !isStreaming;
      choosePictures.hidden = !acceptsImages && !acceptsVideos;
      takesVideos = acceptsVideos;
      pictureFiles.accept = acceptsVideos ? "image/*,video/*,application/pdf" : "image/*,application/pdf";
      find(choosePictures, "span", HTMLElement).textContent = acceptsVideos
        ? "Add picture, video or PDF"
        : "Add picture or PDF";
      question.placeholder = acceptsImages ? "Ask about a picture…" : "Ask something…";
      suggestionList.replaceChildren(
        ...suggestions.map((text) =>
          createQuestionButton(text, () => void on.ask({ question: text, pictures: [] }, null)),
        ),
      );
    },
  };
}
