/**
 * The image's HEALTHCHECK: exits with 0 if /livez says that the process needs no restart. JavaScript, so that no probe
 * loads the type stripper, and `node:http`, which loads faster than `fetch`.
 */
import { get } from "node:http";

/** Less than the HEALTHCHECK's own timeout, which would kill the probe without a message. */
const TIMEOUT_MS = 4000;

/** @param {string} name */
const valueOf = (name) => process.env[name]?.trim() ?? "";
// As in functions/settings/config.ts, where empty text counts as unset.
const port = valueOf("AIP_HTTP_PORT") || valueOf("SAGEMAKER_BIND_TO_PORT") || valueOf("PORT") || "8000";
const host = ["", "0.0.0.0", "::"].includes(valueOf("HOST")) ? "127.0.0.1" : valueOf("HOST");

get({ host, port: Number(port), path: "/livez", timeout: TIMEOUT_MS }, (response) => {
  process.exit(response.statusCode === 200 ? 0 : 1);
})
  .on("timeout", () => fail(`no answer within ${TIMEOUT_MS} ms`))
  .on("error", (error) => fail(error.message));

/** @param {string} reason */
function fail(reason) {
  process.stderr.write(`http://${host}:${port}/livez: ${reason}\n`);
  process.exit(1);
}
