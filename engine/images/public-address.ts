/** The IP addresses to which references in requests may make the service connect. */
import ipaddr from "ipaddr.js";

/**
 * A public address that Azure answers inside its networks, with the state and the configuration of the machine:
 * https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16.
 */
const azurePlatform = "168.63.129.16";
const IPV6_GLOBAL_UNICAST = ipaddr.IPv6.parseCIDR("2000::/3");

/**
 * Whether an address is global unicast. False for loopback, private, link-local (clouds serve credentials there),
 * shared, unique-local, multicast, reserved and unspecified addresses, for invalid ones, and for every IPv6 form that
 * wraps an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo), because those lead to networks that cannot be
 * checked.
 */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.parse(address);
  if (parsed.range() !== "unicast" || parsed.toString() === azurePlatform) return false;
  return parsed instanceof ipaddr.IPv4 || parsed.match(IPV6_GLOBAL_UNICAST);
}
