/** Finds names in the environment that are probably misspelled settings. */

/** Shorter setting names are too close to unrelated names (MODE, POST) to allow more than swapped letters. */
const MIN_LENGTH_FOR_EDITS = 6;
const MIN_LENGTH_FOR_TWO_EDITS = 10;

export interface NearName {
  readonly found: string;
  readonly meant: string;
}

/**
 * Only close names count, so that a usual environment raises nothing: one edit for setting names from 6 characters, two
 * from 10, one name continuing the other (MAX_MODEL_LENGTH), or a setting name behind a FOVEA_ prefix.
 */
export function findNearNames(
  environment: Readonly<Record<string, string | undefined>>,
  ourNames: readonly string[],
): NearName[] {
  const known = new Set(ourNames);
  return Object.entries(environment).flatMap(([found, value]) => {
    // Kubernetes announces a service called fovea as FOVEA_PORT=tcp://…
    if (known.has(found) || !/^[A-Z][A-Z0-9_]*$/.test(found) || value?.startsWith("tcp://")) return [];
    const meant = ourNames.find((name) => isNear(found, name));
    return meant === undefined ? [] : [{ found, meant }];
  });
}

function isNear(found: string, ours: string): boolean {
  if (found === `FOVEA_${ours}`) return true;
  // Others have more names than those that are listed.
  if (/^(AWS|OTEL)_/.test(ours) || /^(AWS|OTEL)_/.test(found)) return false;
  if (ours.length < MIN_LENGTH_FOR_EDITS)
    return found.length === ours.length && editDistance(found, ours) === 1 && isPermutation(found, ours);
  if (ours.length < MIN_LENGTH_FOR_TWO_EDITS) return editDistance(found, ours) === 1;
  return editDistance(found, ours) <= 2 || found.startsWith(ours);
}

function isPermutation(first: string, second: string): boolean {
  return first.split("").sort().join("") === second.split("").sort().join("");
}

/** Edits of one character, a swap of neighbours counting as one (optimal string alignment). */
function editDistance(first: string, second: string): number {
  const width = second.length + 1;
  const distances = new Uint16Array((first.length + 1) * width);
  for (let row = 0; row <= first.length; row++) {
    for (let column = 0; column <= second.length; column++) {
      const at = row * width + column;
      if (row === 0 || column === 0) {
        distances[at] = row + column;
        continue;
      }
      const substitution = first[row - 1] === second[column - 1] ? 0 : 1;
      let best = Math.min(
        distances[at - width]! + 1,
        distances[at - 1]! + 1,
        distances[at - width - 1]! + substitution,
      );
      if (row > 1 && column > 1 && first[row - 1] === second[column - 2] && first[row - 2] === second[column - 1]) {
        best = Math.min(best, distances[at - 2 * width - 2]! + 1);
      }
      distances[at] = best;
    }
  }
  return distances[first.length * width + second.length]!;
}
