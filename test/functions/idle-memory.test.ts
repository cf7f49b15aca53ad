import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { IDLE_MS, releaseMemoryWhenIdle } from "../../functions/idle-memory.ts";
import { createTestApp } from "../support/service/test-app.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const never = new AbortController().signal;

test("a service returns its memory once after each idle time, and not while a request is in progress", async () => {
  const { service } = createTestApp();
  const release = vi.fn<() => Promise<void>>(async () => {});
  releaseMemoryWhenIdle(service, release);
  await vi.advanceTimersByTimeAsync(IDLE_MS);
  expect(release).toHaveBeenCalledTimes(1);
  const admission = service.admit(never);
  await vi.advanceTimersByTimeAsync(3 * IDLE_MS);
  expect(release).toHaveBeenCalledTimes(1);
  admission.release();
  await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
  expect(release).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(3 * IDLE_MS);
  expect(release).toHaveBeenCalledTimes(2);
});

test("a request shortly before the end of the time starts it again", async () => {
  const { service } = createTestApp();
  const release = vi.fn<() => Promise<void>>(async () => {});
  releaseMemoryWhenIdle(service, release);
  await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
  service.admit(never).release();
  await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
  expect(release).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);
  expect(release).toHaveBeenCalledTimes(1);
});

test("a service that drains returns nothing", async () => {
  const { service } = createTestApp();
  const release = vi.fn<() => Promise<void>>(async () => {});
  releaseMemoryWhenIdle(service, release);
  await service.drain(0);
  await vi.advanceTimersByTimeAsync(2 * IDLE_MS);
  expect(release).not.toHaveBeenCalled();
});
