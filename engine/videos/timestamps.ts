/** Times of frames as prompts spell them. */
import { roundHalfToEven } from "../round-half-to-even.ts";

/** `01:05` after 65 seconds; the minutes continue above 59. */
export function minutesAndSeconds(seconds: number): string {
  return [Math.floor(seconds / 60), Math.floor(seconds % 60)].map(twoDigits).join(":");
}

/** `1:01:05` after 3,665 seconds. */
export function hoursMinutesAndSeconds(seconds: number): string {
  return `${Math.floor(seconds / 3600)}:${minutesAndSeconds(seconds % 3600)}`;
}

/** `65.2`, like Python's `.1f`: of two equally near, the even one. */
export function tenths(seconds: number): string {
  const isBetween = Number.isInteger(4 * seconds) && !Number.isInteger(2 * seconds);
  return (isBetween ? roundHalfToEven(10 * seconds) / 10 : seconds).toFixed(1);
}

function twoDigits(value: number): string {
  return String(value).padStart(2, "0");
}
