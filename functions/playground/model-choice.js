/** The model that answers: chosen for each conversation; a new one begins with the model that was chosen last. */

const storageName = "fovea-model";

/** @typedef {ReturnType<typeof createModelChoice>} ModelChoice */

/**
 * @param {HTMLSelectElement} select
 * @param {(name: string) => void} onChoice  Of the reader.
 */
export function createModelChoice(select, onChoice) {
  let wanted = tryRead();

  /** A model that is no longer served leaves the choice as it is. */
  function apply() {
    const served = [...select.options].some(({ value }) => value === wanted);
    if (served) select.value = wanted;
  }

  select.addEventListener("change", () => {
    wanted = select.value;
    tryStore(wanted);
    onChoice(wanted);
  });

  return {
    get value() {
      return select.value;
    },

    /** @param {string} name  Applied as soon as the server has it. */
    choose(name) {
      wanted = name;
      apply();
    },

    /** @param {readonly string[]} names */
    show(names) {
      select.replaceChildren(...names.map((name) => new Option(name, name)));
      apply();
    },
  };
}

function tryRead() {
  try {
    return localStorage.getItem(storageName) ?? "";
  } catch {
    // Storage is off.
    return "";
  }
}

/** @param {string} name */
function tryStore(name) {
  try {
    localStorage.setItem(storageName, name);
  } catch {
    // As above.
  }
}
