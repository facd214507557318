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

const scrolling = (className, label, ...children) => {
  const element = make("pre", className, ...children);
  element.tabIndex = 0;
  element.setAttribute("role", "region");
  element.setAttribute("aria-label", label);
  return element;
};

const card = (one) => {
  const times = `${one.count} ${one.count === 1 ? "case" : "cases"}`;
  const told = [times, one.classes.join(", "), one.recurs ? "" : "did not recur"];
  const diff = scrolling("diff", "Difference", ...one.difference.map((line) =>
    make("span", { "-": "gone", "+": "new" }[line[0]] || "", `${line}\n`)));
  const script = make("details", "", make("summary", "", "Script"), scrolling("script", "Script", one.script));
  const typed = [...one.history, one.input].map((line) => make("pre", "line", line));
  const note = told.filter(Boolean).join(" · ");
  return make("li", "card", ...typed, make("p", "note", note), diff, script);
};

browse(10, ["finding", "findings"], choose, card);
