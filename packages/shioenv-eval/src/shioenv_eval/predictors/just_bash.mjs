// just-bash behind lines of JSON: first the system's files, then an input a line.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { Bash, InMemoryFs } = await import(pathToFileURL(process.argv[2]).href);
let system = null;

/** An interpreter over the system's files as they were built. */
const fresh = async (cwd) => {
  const fs = new InMemoryFs();
  const bash = new Bash({ fs, cwd, env: system.environment, executionLimitProfile: "normal" });
  const own = new Set(fs.getAllPaths());
  for (const [path, kind, mode, seconds, content] of system.files) {
    if (own.has(path) && kind !== "directory") continue;
    const mtime = new Date(seconds * 1000);
    try {
      if (kind === "directory") fs.mkdirSync(path, { recursive: true });
      else if (kind === "symlink") await fs.symlink(content, path);
      else fs.writeFileSync(path, content, undefined, { mode, mtime });
      if (kind === "directory") await fs.chmod(path, mode);
    } catch {
      continue; // what it does not let be made
    }
  }
  for (const [path, kind, , seconds] of system.files) {
    const mtime = new Date(seconds * 1000);
    if (kind === "directory") await fs.utimes(path, mtime, mtime).catch(() => {});
  }
  return { bash, fs };
};

/** Every file as [kind, mode, time, content], by path. */
const tree = (fs) => {
  const found = new Map();
  for (const [path, entry] of fs.data instanceof Map ? fs.data : Object.entries(fs.data)) {
    const content = entry.type === "symlink" ? entry.target : entry.content ?? entry.lazy;
    found.set(path, [entry.type, entry.mode, entry.mtime?.getTime?.() ?? 0, content]);
  }
  return found;
};

const same = (a, b) =>
  a === b || (a instanceof Uint8Array && b instanceof Uint8Array && Buffer.compare(a, b) === 0);

const changes = (before, after) => {
  const found = [];
  for (const [path, [kind, mode, time, content]] of after) {
    const old = before.get(path);
    if (!old) found.push(["added", path]);
    else if (
      old[0] !== kind || old[1] !== mode ||
      (kind !== "directory" && (!same(old[3], content) || old[2] !== time))
    ) found.push(["changed", path]);
  }
  for (const path of before.keys()) if (!after.has(path)) found.push(["removed", path]);
  return found;
};

for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  if (question.system) {
    system = question.system;
    for (const file of system.files) {
      if (file[1] === "file") file[4] = new Uint8Array(Buffer.from(file[4], "base64"));
    }
    process.stdout.write("{}\n");
    continue;
  }
  const { bash, fs } = await fresh(question.cwd);
  let state = { cwd: question.cwd };
  if (question.history.length) {
    const done = await bash.exec(question.history.join("\n"), { cwd: question.cwd });
    state = { cwd: done.env?.PWD ?? question.cwd, env: done.env };
  }
  const before = tree(fs);
  const done = await bash.exec(`{ ${question.input}\n} 2>&1`, state);
  const answer = {
    exit_code: done.exitCode & 255,
    output_b64: Buffer.from(done.stdout + done.stderr, "utf8").toString("base64"),
    changes: changes(before, tree(fs)),
  };
  process.stdout.write(JSON.stringify(answer) + "\n");
}
