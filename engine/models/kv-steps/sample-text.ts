/**
 * A text whose keys and values show the range of each channel: prose in several languages, a list, code, numbers and
 * markup. Pictures are not in it; the steps have headroom for them.
 */
export const sampleText = `The harbour was quiet before sunrise. Two fishing boats came in with the tide, and the crew \
carried crates of mackerel to the market, where buyers had been waiting since five o'clock. "How much for the small ones?" \
asked a woman in a red coat. Nobody answered at first; then the oldest fisherman held up four fingers.

Question: A train leaves at 09:42 and arrives at 13:07. How long does the journey take?
Answer: 3 hours and 25 minutes, because 13:07 - 09:42 = 3:25.

1. Preheat the oven to 180 °C (356 °F).
2. Mix 250 g of flour with 125 g of butter, 80 g of sugar and a pinch of salt.
3. Bake for 25 minutes; let it cool.

function sum(values: number[]): number {
  let total = 0;
  for (const value of values) total += value; // 64-bit floats
  return total;
}
SELECT name, COUNT(*) AS orders FROM customers WHERE country = 'NO' GROUP BY name HAVING COUNT(*) > 10;
{"id": 7, "tags": ["invoice", "2026-03-14"], "total": 1249.90, "paid": false, "notes": null}
| Year | Revenue | Change |
| --- | --- | --- |
| 2024 | 1,204,550 | +3.1 % |

Der Vertrag endet am 31. Dezember, wenn keine der Parteien ihn vorher verlängert. La réunion de demain est reportée à \
jeudi. El informe describe tres causas principales del retraso. 今日はとても寒いですが、空は晴れています。这张图片里有三只猫。 \
Сегодня мы поедем на дачу. هذا الكتاب مفيد جدا. x^2 + 2x + 1 = (x + 1)^2; e^{i*pi} = -1. <b>Total:</b> &euro;12 :-) 🚲`;
