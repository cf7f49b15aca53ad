import { expect, test } from "vitest";

import { connectionShares } from "../../../functions/http/open-files.ts";

test.for([
  { maxOpenFiles: 64, maxNumClients: 16, maxNumPictureHosts: 16 },
  { maxOpenFiles: 1024, maxNumClients: 768, maxNumPictureHosts: 128 },
  { maxOpenFiles: 524_288, maxNumClients: 458_624, maxNumPictureHosts: 65_536 },
  { maxOpenFiles: Infinity, maxNumClients: Infinity, maxNumPictureHosts: Infinity },
])("of $maxOpenFiles open files, $maxNumClients are for clients", ({ maxOpenFiles, ...shares }) => {
  expect(connectionShares(maxOpenFiles)).toEqual(shares);
});
