/** The types fit a program that uses all of the client, and are refused where they do not fit. */

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";
import test from "node:test";

const cwd = fileURLToPath(new URL("..", import.meta.url));
const tsc = (...options) => spawnSync("npx", ["--no-install", "tsc", ...options], { cwd, encoding: "utf8" });
const version = tsc("--version");
const skip = version.status === 0 && version.stdout.startsWith("Version") ? false : "no typescript: run `npm install`";

test("a program that uses all of the client has no errors of types", { skip }, () => {
  const { status, stdout } = tsc("--project", "tests/tsconfig.json");
  assert.equal(status, 0, stdout);
});
