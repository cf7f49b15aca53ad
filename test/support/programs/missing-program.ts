/** Thrown if a program that the tests start is not on this machine and cannot be downloaded. */
export class MissingProgramError extends Error {
  override readonly name = "MissingProgramError";

  /** @param remedy A command, or two with "or" between them, that provides the program. */
  constructor(program: string, reason: string, remedy: string) {
    super(`${program}: ${reason}\n    Run: ${remedy}`);
  }
}
