import { expect, test } from "vitest";

import { cardRates } from "./card-rates.ts";

test.for([
  ["NVIDIA H100 80GB HBM3", 3.35, 989.5],
  ["NVIDIA H100 PCIe", 2, 756.5],
  ["NVIDIA H200", 4.8, 989.5],
  ["NVIDIA H200 NVL", 4.8, 835.5],
  ["NVIDIA A100-SXM4-40GB", 1.555, 312],
  ["NVIDIA L4", 0.3, 121],
  ["NVIDIA L40S", 0.864, 362],
] as const)("%s has %d TB/s and %d TFLOP/s", ([name, terabytesPerSecond, denseTeraflops]) => {
  expect(cardRates(name)).toEqual({ terabytesPerSecond, denseTeraflops });
});

test.for(["NVIDIA L40", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "stub"])("the rates of %s are not known", (name) => {
  expect(cardRates(name)).toBeNull();
});
