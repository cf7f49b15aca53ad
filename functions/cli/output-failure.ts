/** Describes why the results of a batch cannot be written: one line that names the place, and what to do. */

/** A result could not be written to a file or to standard output. */
export class OutputError extends Error {
  override readonly name = "OutputError";
  /** Of the system's error; null if it has none. */
  readonly code: string | null;

  /** @param place Begins the message. */
  constructor(place: string, cause: unknown) {
    const [code, message] = cause instanceof Error ? [codeOf(cause), cause.message] : [null, String(cause)];
    super(`${place} cannot be written: ${message}.`, { cause });
    this.code = code;
  }
}

/** By the code of the system's error. */
const adviceOf: Readonly<Record<string, string>> = {
  ENOSPC: "Make room on the disk.",
  EDQUOT: "Make room within this user's quota of the disk.",
  EFBIG: "Raise this user's limit for the length of files (ulimit -f).",
};

/** Null for an error that is not about results. */
export function describeOutputFailure(error: unknown): { readonly reason: string; readonly advice: string } | null {
  if (!(error instanceof OutputError)) return null;
  if (error.code === "EPIPE") {
    return {
      reason: "The program that reads standard output has ended.",
      advice: "To keep the results that are ready, and resume, set --output to a file.",
    };
  }
  return { reason: error.message, advice: adviceOf[error.code ?? ""] ?? "Check the disk and its file system." };
}

function codeOf(error: Error): string | null {
  return "code" in error && typeof error.code === "string" ? error.code : null;
}
