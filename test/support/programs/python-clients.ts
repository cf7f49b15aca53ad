/** A Python with OpenAI's client and LiteLLM, with which the tests call the service. */
import { fileURLToPath } from "node:url";

import { locate } from "./locate.ts";
import { ensurePythonPackages } from "./python-packages.ts";

const requirements = fileURLToPath(new URL("python-clients-requirements.txt", import.meta.url));

/**
 * Returns the path of a Python that can import `openai` and `litellm`.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensurePythonClients(): Promise<string> {
  return locate({
    name: "Python with openai and litellm[proxy]",
    variable: "PYTHON_CLIENTS",
    fetch: () =>
      ensurePythonPackages({
        name: "python-clients",
        description: "OpenAI's Python client and LiteLLM (78 MB, with pip)",
        requirements,
        // The list is what they import, not all that they require.
        options: ["--no-deps"],
        launcher: "python-with-clients",
        script: null,
      }),
    // The system's Python has other versions of them, if it has any.
    system: [],
    debianPackages: "python3 python3-pip",
  });
}
