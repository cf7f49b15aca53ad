/** Headless Chromium, and the software Vulkan that comes with it: SwiftShader and Vulkan's loader. */
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { chmod, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

import { ensureFolder, run, writeLauncher } from "./cache-folder.ts";
import { locate } from "./locate.ts";

const version = "153.0.0";
/** From npm's registry: `npm view @sparticuz/chromium@153.0.0 dist.integrity`. */
const integrity = "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==";

const isPackaged = process.platform === "linux" && process.arch === "x64";

/**
 * Returns the path of a Chromium.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensureChromium(): Promise<string> {
  return locate({
    name: "Chromium",
    variable: "CHROMIUM",
    fetch: isPackaged ? async () => join(await fetchChromium(), "chromium.sh") : null,
    system: ["chromium", "google-chrome"],
    debianPackages: "chromium",
  });
}

/**
 * Returns the path of the file that names a Vulkan driver. Vulkan's loader is next to it, unless the system has one.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensureVulkanDriver(): Promise<string> {
  return locate({
    name: "SwiftShader, a software GPU",
    variable: "VULKAN_DRIVER",
    fetch: isPackaged ? async () => join(await fetchChromium(), "vk_swiftshader_icd.json") : null,
    system: ["/usr/lib/chromium/vk_swiftshader_icd.json"],
    debianPackages: "chromium libvulkan1",
  });
}

/** Returns the environment of a process that computes on the software GPU. */
export async function softwareGpuEnvironment(): Promise<NodeJS.ProcessEnv> {
  const driver = await ensureVulkanDriver();
  const libraries = [dirname(driver), process.env.LD_LIBRARY_PATH].filter((path) => path !== undefined);
  return { ...process.env, VK_DRIVER_FILES: driver, LD_LIBRARY_PATH: libraries.join(":") };
}

let fetched: Promise<string> | undefined;

function fetchChromium(): Promise<string> {
  // The browser and the driver are requested at the same time.
  return (fetched ??= ensureFolder({
    name: `chromium-${version}`,
    description: `Chromium ${version} and SwiftShader (70 MB, with npm)`,
    fill: async (folder, finalFolder) => {
      const archive = await packPackage(folder);
      await run("tar", ["-xzf", archive, "--strip-components=2", "package/bin"], { cwd: folder });
      await rm(archive);
      await decompress(join(folder, "chromium"));
      await chmod(join(folder, "chromium"), 0o755);
      for (const part of ["al2023.tar", "fonts.tar", "swiftshader.tar"]) {
        await decompress(join(folder, part));
        await run("tar", ["-xf", part, "--no-same-owner"], { cwd: folder });
        await rm(join(folder, part));
      }
      await writeFile(join(folder, "fonts.conf"), fontsConfiguration(finalFolder));
      await writeLauncher(join(folder, "chromium.sh"), [join(finalFolder, "chromium")], {
        LD_LIBRARY_PATH: join(finalFolder, "lib"),
        FONTCONFIG_FILE: join(finalFolder, "fonts.conf"),
      });
    },
  }));
}

/** Downloads the package from the user's own registry; returns the path of the archive in `folder`. */
async function packPackage(folder: string): Promise<string> {
  const options = [
    "--loglevel=error",
    "--prefer-offline",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=5000",
  ];
  const name = (await run("npm", ["pack", `@sparticuz/chromium@${version}`, ...options], { cwd: folder })).trim();
  const archive = join(folder, name);
  const actual = `sha512-${createHash("sha512")
    .update(await readFile(archive))
    .digest("base64")}`;
  if (actual !== integrity) throw new Error(`${name} has the hash ${actual}; expected ${integrity}.`);
  return archive;
}

/** Replaces `${file}.br` by `file`. */
async function decompress(file: string): Promise<void> {
  await pipeline(createReadStream(`${file}.br`), createBrotliDecompress(), createWriteStream(file));
  await rm(`${file}.br`);
}

/** The package's own file names the folders of a cloud function. */
function fontsConfiguration(folder: string): string {
  return `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${folder}/fonts</dir>
  <cachedir>${folder}/fonts-cache</cachedir>
</fontconfig>
`;
}
