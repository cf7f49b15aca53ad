/** https://www.w3.org/TR/trace-context/#traceparent-header */
import { expect, test } from "vitest";

import { chatBody, createTestApp } from "../../support/service/test-app.ts";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const ids = `${traceId}-00f067aa0ba902b7`;

test.for<[string, traceparent: string, isRead: boolean]>([
  ["of version 00", `00-${ids}-01`, true],
  ["of version 00 with more fields", `00-${ids}-01-more`, false],
  ["of a later version with more fields", `01-${ids}-01-more`, true],
  ["of a later version with a longer last field", `01-${ids}-01.more`, false],
  ["of the forbidden version", `ff-${ids}-01`, false],
  ["in upper case", `00-${ids.toUpperCase()}-01`, false],
  ["of zeros", `00-${"0".repeat(32)}-00f067aa0ba902b7-01`, false],
  ["that is sent twice", `00-${ids}-01, 00-${ids}-01`, false],
])("the log has the trace of a traceparent only if it is valid: %s", async ([, traceparent, isRead]) => {
  const { post, log } = createTestApp();
  await (await post("/v1/chat/completions", chatBody, { traceparent })).text();
  expect(log.find(({ message }) => message === "request")?.traceId).toBe(isRead ? traceId : undefined);
});
