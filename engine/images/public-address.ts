/** Which IP addresses strangers may make the service connect to. */
import ipaddr from "ipaddr.js";

const IPV6_GLOBAL_UNICAST = ipaddr.IPv6.parseCIDR("2000::/3");

/**
 * Whether an address is global unicast. False for loopback, private, link-local (clouds serve credentials there),
 * shared, unique-local, multicast, reserved and unspecified ones, for what is no address, and for every IPv6 form that
 * wraps an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo), as those lead to networks that cannot be judged.
 */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.parse(address);
  if (parsed.range() !== "unicast") return false;
  return parsed instanceof ipaddr.IPv4 || parsed.match(IPV6_GLOBAL_UNICAST);
}
