/** The environment of npm commands that tests run in their own folders. */

/** This machine's access to packages, without the folders of the npm that runs the tests. */
export function npmEnvironment(): Readonly<Record<string, string | undefined>> {
  const isNeeded = /^(PATH|HOME|NODE_EXTRA_CA_CERTS|\w*_proxy|npm_config_(registry|cache|userconfig))$/i;
  const needed = Object.entries(process.env).filter(([name]) => isNeeded.test(name));
  return { ...Object.fromEntries(needed), npm_config_prefer_offline: "true" };
}
