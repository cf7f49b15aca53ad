/** Connections that reach public addresses only, whatever names and redirects say. */
import type { LookupAddress } from "node:dns";
import { isIP, isIPv6, type LookupFunction } from "node:net";
import type { Agent, buildConnector } from "undici";

import { EngineError } from "../contract/errors.ts";
import { isPublicAddress } from "./public-address.ts";

export interface GuardedAgentOptions {
  /** `host:port` entries that may be private, as they stand in the URL: object stores of the same cluster. */
  readonly allowedPrivateHosts: ReadonlySet<string>;
  readonly lookup: LookupFunction;
  /** PEM certificates trusted instead of the public authorities; null trusts those. */
  readonly certificateAuthorities: string | null;
}

const CONNECT_TIMEOUT_MS = 5_000;
/** Per host; more requests to it wait their turn. */
const MAX_CONNECTIONS = 16;

/**
 * An agent that judges addresses where the socket is opened: a name is resolved once, all its addresses are checked,
 * and the socket connects to one of those, so that a name which resolves differently a moment later gains nothing.
 * Refusals fail the request with EngineError `invalid_image_reference`.
 */
export async function createGuardedAgent(options: GuardedAgentOptions): Promise<Agent> {
  // Loaded by the first request that needs it; a start that serves none should not pay for it.
  const { Agent, buildConnector } = await import("undici");
  const common: buildConnector.BuildOptions = {
    allowH2: false,
    timeout: CONNECT_TIMEOUT_MS,
    ...(options.certificateAuthorities !== null && { ca: options.certificateAuthorities }),
  };
  const connectAnywhere = buildConnector({ ...common, lookup: options.lookup });
  const connectToPublic = buildConnector({ ...common, lookup: publicOnly(options.lookup) });
  return new Agent({
    allowH2: false,
    connections: MAX_CONNECTIONS,
    connect(target, callback) {
      const host = target.hostname.replace(/^\[|\]$/g, "");
      const port = target.port || (target.protocol === "https:" ? "443" : "80");
      if (options.allowedPrivateHosts.has(`${isIPv6(host) ? `[${host}]` : host}:${port}`)) {
        connectAnywhere(target, callback);
      } else if (isIP(host) !== 0 && !isPublicAddress(host)) {
        callback(notPublic(), null);
      } else {
        connectToPublic(target, callback);
      }
    },
  });
}

/** Fails a lookup when any of the addresses is not public: a name that has both kinds is not honest. */
function publicOnly(lookup: LookupFunction): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, found, family) => {
      if (error !== null) return callback(error, []);
      const addresses: LookupAddress[] = typeof found === "string" ? [{ address: found, family: family ?? 4 }] : found;
      if (addresses.length === 0 || !addresses.every(({ address }) => isPublicAddress(address))) {
        return callback(notPublic(), []);
      }
      if (options.all === true) return callback(null, addresses);
      callback(null, addresses[0].address, addresses[0].family);
    });
  };
}

function notPublic(): EngineError {
  return new EngineError("invalid_image_reference", "The image's host has an address that is not public.");
}
