/** Loaded into every thread of a server: on SIGUSR2, each writes which functions it has entered since the last time. */
import process from "node:process";
import { takeCoverage } from "node:v8";
import { isMainThread } from "node:worker_threads";

const channel = new BroadcastChannel("fovea.takeCoverage");
channel.addEventListener("message", () => takeCoverage());
channel.unref();

if (isMainThread) {
  process.on("SIGUSR2", () => {
    takeCoverage();
    channel.postMessage(null);
  });
}
