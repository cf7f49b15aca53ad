/** The environment of npm commands that tests run in folders of their own. */

/** How this machine reaches packages, without what the npm around the tests says about its own folder. */
export function npmEnvironment(): Readonly<Record<string, string | undefined>> {
  const isNeeded = /^(PATH|HOME|NODE_EXTRA_CA_CERTS|\w*_proxy|npm_config_(registry|cache|userconfig))$/i;
  const needed = Object.entries(process.env).filter(([name]) => isNeeded.test(name));
  return { ...Object.fromEntries(needed), npm_config_prefer_offline: "true" };
}
