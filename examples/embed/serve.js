/**
 * The HTTP service inside a program of yours, in plain JavaScript.
 *
 *     npm install /path/to/fovea-0.1.0.tgz
 *     node serve.js
 *
 * Settings have the names that `npx fovea --help` lists.
 */
import { serve } from "fovea/server";

const service = await serve(
  { PORT: process.env.PORT ?? 8000, HOST: "127.0.0.1", PLAYGROUND: false },
  { log: (line) => process.stderr.write(line) },
);
console.log(`http://127.0.0.1:${service.port}`);

// You handle signals: here the service drains on SIGTERM.
process.once("SIGTERM", () => void service.close());
process.once("SIGINT", () => void service.close());

await service.ready;
console.log("ready");
