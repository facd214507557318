// Judge just-bash by ShIOEnv's frozen answers: npm start -- SUITE ANSWERS.jsonl
// SUITE is a name (public-test, sessions-200, conformance) or a file. The answers are written for
// judge.py, and the shares of right ones are printed. It needs neither Python nor a built system.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { Bash, InMemoryFs } from "just-bash";

const VERSION = "3.4.2";
const PACKAGE = "../../packages/shioenv-eval/src/shioenv_eval/frozen/";
const FROZEN = new URL(process.env.FROZEN ?? PACKAGE, import.meta.url); // ends with a slash

type Operation = [code: string, path: string, ...rest: unknown[]];
type Behavior = { output: Buffer; exit_code: number; context_patch: Operation[] };
type Case = {
  question: { input: string; cwd?: string; history?: string[]; steps: string };
  gold: { output?: string; output_b64?: string; exit_code: number; context_patch: Operation[] }[];
};

const read = (path: string | URL): string => {
  const content = readFileSync(path);
  return (content[0] === 0x1f ? gunzipSync(content) : content).toString("utf8");
};
const machine = JSON.parse(read(new URL("machine.json.gz", FROZEN)));
for (const file of machine.files) if (file[1] === "file") file[4] = Buffer.from(file[4], "base64");

process.on("unhandledRejection", () => {}); // of inputs that it aborts

/** An interpreter over the machine's files. */
const fresh = async (cwd: string) => {
  const fs: any = new InMemoryFs();
  const bash = new Bash({ fs, cwd, env: machine.environment, executionLimitProfile: "normal" });
  const own = new Set(fs.getAllPaths());
  for (const [path, kind, mode, seconds, content] of machine.files) {
    if (own.has(path) && kind !== "directory") continue;
    try {
      if (kind === "directory") fs.mkdirSync(path, { recursive: true });
      else if (kind === "symlink") await fs.symlink(content, path);
      else fs.writeFileSync(path, content, undefined, { mode, mtime: new Date(seconds * 1000) });
      if (kind === "directory") await fs.chmod(path, mode);
    } catch {} // a name that it reserves
  }
  return { fs, bash };
};

/** Each file's kind, mode, and content by path; the times of files count too. */
const tree = (fs: any): Map<string, string> => {
  const found = new Map<string, string>();
  for (const [path, entry] of fs.data as Map<string, any>) {
    const content = entry.type === "symlink" ? entry.target : (entry.content ?? "");
    const time = entry.type === "file" ? entry.mtime?.getTime() : 0;
    const text = typeof content === "string" ? content : Buffer.from(content).toString("base64");
    found.set(path, JSON.stringify([entry.type, entry.mode, time, text]));
  }
  return found;
};

/** The pointer of a file in a patch, relative to the start directory where it is inside. */
const pointer = (path: string, cwd: string): string => {
  const inside = path.startsWith(`${cwd}/`) ? path.slice(cwd.length + 1) : path;
  const name = path === cwd ? "." : inside.replaceAll("\\", "\\\\");
  return `/fs/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
};

const ask = async (question: Case["question"]): Promise<Behavior> => {
  const cwd = question.cwd ?? machine.start;
  const { fs, bash } = await fresh(cwd);
  let state: object = { cwd };
  if (question.history?.length) {
    const done = await bash.exec(question.history.join("\n"), { cwd });
    state = { cwd: done.env?.PWD ?? cwd, env: done.env };
  }
  const before = tree(fs);
  const done = await bash.exec(`{ ${question.input}\n} 2>&1`, state);
  const after = tree(fs);
  const patch: Operation[] = [];
  for (const [path, entry] of after) {
    if (!before.has(path)) patch.push(["a", pointer(path, cwd), {}]);
    else if (before.get(path) !== entry) patch.push(["=", `${pointer(path, cwd)}/content`, true]);
  }
  for (const path of before.keys()) if (!after.has(path)) patch.push(["r", pointer(path, cwd)]);
  const output = Buffer.from(done.stdout + done.stderr, "utf8");
  return { output, exit_code: done.exitCode & 255, context_patch: patch };
};

/** The changed files of a patch, each with its change; other operations and links do not count. */
const files = (patch: Operation[]): string => {
  const found = new Set<string>();
  for (const [code, path, target] of patch) {
    const [, area, name, field] = path.split("/");
    if (area !== "fs" || !name || field === "links") continue;
    found.add(`${field ? "=" : code === "m" ? "r" : code} ${name}`);
    if (code === "m") found.add(`a ${(target as string).split("/")[2]}`);
  }
  return [...found].sort().join("\n");
};

const [suite = "public-test", out = "answers.jsonl"] = process.argv.slice(2);
const [, ...lines] = read(existsSync(suite) ? suite : new URL(`${suite}.jsonl.gz`, FROZEN)).trimEnd().split("\n");
const answers = [JSON.stringify({ version: `just-bash ${VERSION}`, patch_level: "files" })];
const right = { output: 0, exit: 0, "output and files": 0 };
for (const { question, gold } of lines.map((line): Case => JSON.parse(line))) {
  const found = await ask(question).catch(() => null);
  if (!found) continue; // no answer
  const { output, ...said } = found;
  const { input, cwd = machine.start, history = [] } = question;
  answers.push(JSON.stringify({ input, cwd, history, ...said, output_b64: output.toString("base64") }));
  const text = output.toString("latin1").replaceAll("\r\n", "\n");
  const same = gold.filter((run) => {
    const raw = run.output_b64 ? Buffer.from(run.output_b64, "base64") : Buffer.from(run.output!);
    return raw.toString("latin1").replaceAll("\r\n", "\n") === text;
  });
  right.output += +(same.length > 0);
  right.exit += +gold.some((run) => run.exit_code === said.exit_code);
  right["output and files"] += +same.some((run) => files(run.context_patch) === files(said.context_patch));
}
writeFileSync(out, answers.join("\n") + "\n");
for (const [name, count] of Object.entries(right)) console.log(`${name} | ${(count / lines.length).toFixed(4)}`);
