/** Errors about options of videos and documents. */
import { HttpError } from "../http/errors.ts";

/** @param message Without its full stop. */
export function refusedOption(parameter: string, message: string): HttpError {
  return new HttpError(400, "invalid_value", `${message}.`, { parameter });
}
