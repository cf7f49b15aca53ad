/**
 * Memory bandwidth and dense bfloat16 rate of cards, from NVIDIA's data sheets: percentages of them need no second look-up.
 * Sheets that state rates with sparsity state twice the dense rate.
 *
 * @see https://www.nvidia.com/en-us/data-center/h100/ and the pages and data sheets of H200, A100, L4 and L40S there
 */
export interface CardRates {
  readonly terabytesPerSecond: number;
  /** Of bfloat16 and float16 products in tensor cores, without sparsity. */
  readonly denseTeraflops: number;
}

/** By the name that the driver has for the card; the first that matches. */
const cards: readonly (readonly [pattern: RegExp, rates: CardRates])[] = [
  [/H200 NVL/, { terabytesPerSecond: 4.8, denseTeraflops: 835.5 }],
  [/H200/, { terabytesPerSecond: 4.8, denseTeraflops: 989.5 }],
  [/H100 NVL/, { terabytesPerSecond: 3.9, denseTeraflops: 835.5 }],
  [/H100 PCIe/, { terabytesPerSecond: 2, denseTeraflops: 756.5 }],
  [/H100 80GB HBM3/, { terabytesPerSecond: 3.35, denseTeraflops: 989.5 }],
  [/A100-SXM4-80GB/, { terabytesPerSecond: 2.039, denseTeraflops: 312 }],
  [/A100 80GB PCIe/, { terabytesPerSecond: 1.935, denseTeraflops: 312 }],
  [/A100-\w+-40GB/, { terabytesPerSecond: 1.555, denseTeraflops: 312 }],
  [/L40S/, { terabytesPerSecond: 0.864, denseTeraflops: 362 }],
  [/L4$/, { terabytesPerSecond: 0.3, denseTeraflops: 121 }],
];

/** @returns null for a card that is not listed, and for a part of one (MIG). */
export function cardRates(name: string): CardRates | null {
  if (name.includes("MIG")) return null;
  return cards.find(([pattern]) => pattern.test(name))?.[1] ?? null;
}
