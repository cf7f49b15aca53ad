/** Numbers as English words, for prompts that say how many frames follow. */
const ones =
  "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(
    " ",
  );
const tens = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");

/** `one hundred and twenty-eight`; `one thousand, one hundred and one`. For integers from 0 to 999,999. */
export function numberWords(value: number): string {
  if (value < 20) return ones[value]!;
  if (value < 100) return joined(tens[Math.floor(value / 10) - 2]!, value % 10, "-");
  if (value < 1000) return joined(`${ones[Math.floor(value / 100)]} hundred`, value % 100, " and ");
  const rest = value % 1000;
  return joined(`${numberWords(Math.floor(value / 1000))} thousand`, rest, rest < 100 ? " and " : ", ");
}

function joined(first: string, rest: number, separator: string): string {
  return rest === 0 ? first : first + separator + numberWords(rest);
}
