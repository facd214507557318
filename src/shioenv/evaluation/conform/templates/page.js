"use strict";
const { findings } = JSON.parse(byId("data").textContent);

const options = (field, names) => {
  field.append(new Option("all", ""));
  for (const name of [...new Set(names)].sort()) field.append(new Option(name, name));
};
options(byId("command"), findings.map((one) => one.command));
options(byId("class"), findings.flatMap((one) => one.classes));

const choose = () => {
  const query = byId("query").value.toLowerCase();
  const command = byId("command").value;
  const kind = byId("class").value;
  return findings.filter((one) =>
    (!command || one.command === command) &&
    (!kind || one.classes.includes(kind)) &&
    (!query || [one.input, ...one.difference].join("\n").toLowerCase().includes(query)));
};

const card = (one) => {
  const times = `${one.count} ${one.count === 1 ? "case" : "cases"}`;
  const told = [times, one.classes.join(", "), one.recurs ? "" : "did not recur"];
  const diff = make("pre", "diff");
  for (const line of one.difference) {
    const mark = { "-": "gone", "+": "new" }[line[0]] || "";
    diff.append(make("span", mark, `${line}\n`));
  }
  const script = make("details", "", make("summary", "", "Script"), make("pre", "", one.script));
  const typed = [...one.history, one.input].join("\n");
  const note = told.filter(Boolean).join(" · ");
  return make("li", "card", make("pre", "", typed), make("p", "note", note), diff, script);
};

browse(10, ["finding", "findings"], choose, card);
