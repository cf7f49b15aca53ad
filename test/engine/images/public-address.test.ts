import { expect, test } from "vitest";

import { isPublicAddress } from "../../../engine/images/public-address.ts";

test.for(["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:830::200e"])(
  "%s is public",
  (address) => {
    expect(isPublicAddress(address)).toBe(true);
  },
);

test.for([
  ["127.0.0.1", "loopback"],
  ["127.255.255.254", "loopback"],
  ["0.0.0.0", "unspecified"],
  ["0.1.2.3", "this network"],
  ["10.0.0.1", "private"],
  ["172.16.0.1", "private"],
  ["192.168.1.1", "private"],
  ["169.254.169.254", "link-local: cloud credentials"],
  ["100.64.0.1", "carrier-grade NAT"],
  ["100.100.100.200", "carrier-grade NAT: cloud credentials"],
  ["192.0.0.192", "reserved: cloud credentials"],
  ["168.63.129.16", "Azure's platform"],
  ["192.0.2.1", "documentation"],
  ["198.18.0.1", "benchmarking"],
  ["192.88.99.1", "6to4 relay"],
  ["224.0.0.1", "multicast"],
  ["240.0.0.1", "reserved"],
  ["255.255.255.255", "broadcast"],
  ["::", "unspecified"],
  ["::1", "loopback"],
  ["fe80::1", "link-local"],
  ["fe80::1%eth0", "link-local with a zone"],
  ["fec0::1", "site-local"],
  ["fd00:ec2::254", "unique local: cloud credentials"],
  ["ff02::1", "multicast"],
  ["::ffff:127.0.0.1", "IPv4-mapped"],
  ["::ffff:8.8.8.8", "IPv4-mapped"],
  ["::127.0.0.1", "IPv4-compatible"],
  ["64:ff9b::169.254.169.254", "NAT64"],
  ["64:ff9b:1::a9fe:a9fe", "local NAT64"],
  ["2002:7f00:1::", "6to4"],
  ["2001::1", "Teredo"],
  ["2001:db8::1", "documentation"],
  ["100::1", "discard"],
  ["5f00::1", "segment routing"],
  ["localhost", "no address"],
  ["", "no address"],
])("%s is not public: %s", ([address]) => {
  expect(isPublicAddress(address!)).toBe(false);
});
