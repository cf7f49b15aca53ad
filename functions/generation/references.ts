/** Files that a request brings in base64, or refers to. */

/** Of references to uploaded files: `file-id:` and the id. Clients may send them wherever a picture's address goes. */
export const fileIdScheme = "file-id";

/** Base64 has no colon, and neither have the ids of uploaded files. */
const scheme = /^[a-z][a-z\d+.-]*:/i;

function isReference(text: string): boolean {
  return scheme.test(text.slice(0, 64));
}

/** @param mediaType Of base64; may be empty. */
export function toReference(text: string, mediaType: string): string {
  return isReference(text) ? text : `data:${mediaType};base64,${text}`;
}

/** @param id Of an uploaded file. LiteLLM's documentation also puts addresses in its place. */
export function fileReference(id: string): string {
  return isReference(id) ? id : `${fileIdScheme}:${id}`;
}
