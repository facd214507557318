(() => {
  const samples = JSON.parse(byId("data").textContent);
  const haystacks = samples.map((one) =>
    [one.i.map((piece) => piece[0]).join(""), one.o, ...one.p.map((change) => change.join(" "))]
      .join("\n")
      .toLowerCase(),
  );

  const options = (select, values) => {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    const numeric = typeof values[0] === "number";
    const sorted = [...counts.keys()].sort(numeric ? (a, b) => a - b : undefined);
    for (const value of sorted) {
      const option = make("option", "", `${value === "" ? "(none)" : value} (${counts.get(value)})`);
      option.value = JSON.stringify(value);
      select.append(option);
    }
  };

  const bound = (id, otherwise) => {
    const value = byId(id).valueAsNumber;
    return Number.isNaN(value) ? otherwise : value;
  };

  const orders = {
    low: (a, b) => (a.s ?? 2) - (b.s ?? 2),
    high: (a, b) => (b.s ?? -1) - (a.s ?? -1),
    long: (a, b) => b.a - a.a,
    changes: (a, b) => b.p.length + b.q - a.p.length - a.q,
  };

  const choose = () => {
    const query = byId("query").value.toLowerCase();
    const command = byId("command").value;
    const exit = byId("exit").value;
    const low = bound("low", 0);
    const high = bound("high", 1);
    const whole = low <= 0 && high >= 1;
    const chosen = samples.filter(
      (one, index) =>
        (!command || JSON.stringify(one.c) === command) &&
        (!exit || JSON.stringify(one.x) === exit) &&
        (whole || (one.s !== null && one.s >= low && one.s <= high)) &&
        (!query || haystacks[index].includes(query)),
    );
    const order = orders[byId("order").value];
    return order ? chosen.sort(order) : chosen;
  };

  const score = (one) => {
    if (one.s === null) return [make("span", "badge", "nothing to remove")];
    const bar = make("progress");
    bar.max = 1;
    bar.value = one.s;
    const error = one.e ? "exact" : one.d ? `± ${one.d.toFixed(2)}` : "estimate";
    const text = `irreducibility ${one.s.toFixed(2)} (${error})`;
    bar.setAttribute("aria-hidden", "true");
    const parts = [make("span", "badge", text), bar];
    if (one.k !== null) {
      const share = `${Math.round(one.k * one.a)} of ${one.a} arguments necessary`;
      parts.push(make("span", "badge", share));
    }
    return parts;
  };

  const titles = {
    m: "removing it changes the behavior",
    s: "removing it changes the behavior in some sub-inputs",
    i: "removing it does not change the behavior",
    u: "effect unknown",
  };

  const line = (one) => {
    const element = make("pre", "line");
    for (const [text, role] of one.i) {
      if (!role) {
        element.append(text);
        continue;
      }
      const piece = make("span", role, text);
      if (titles[role]) piece.title = titles[role];
      if (role === "i") piece.append(make("span", "unseen", " (no effect)"));
      element.append(piece);
    }
    return element;
  };

  const bytes = (count) => (count === 1 ? "1 byte" : `${count.toLocaleString("en")} bytes`);

  const output = (one) => {
    if (!one.b) return [make("p", "none", "No output.")];
    const element = make("pre", "output", one.o);
    element.tabIndex = 0;
    element.setAttribute("role", "region");
    element.setAttribute("aria-label", `Output of record ${one.n}, ${bytes(one.b)}`);
    if (!one.m) return [element];
    return [element, make("p", "none", `and ${one.m.toLocaleString("en")} more characters`)];
  };

  const changes = (one) => {
    if (!one.p.length) return [];
    const element = make("ul", "changes");
    element.setAttribute("aria-label", `Changes of record ${one.n}`);
    for (const [verb, name, detail] of one.p) {
      const item = make("li", `change ${verb}`, make("span", "verb", verb), make("span", "", name));
      if (detail) item.append(make("span", "detail", detail));
      element.append(item);
    }
    if (one.q) element.append(make("li", "change detail", `and ${one.q} more`));
    return [element];
  };

  const card = (one) => {
    const title = make("h3", "", `Record ${one.n}`);
    title.id = `record-${one.n}`;
    const head = make("div", "head", title);
    head.append(make("span", `badge ${one.x === 0 ? "good" : "bad"}`, `exit code ${one.x}`));
    head.append(...score(one));
    head.append(make("span", "badge", one.a === 1 ? "1 argument" : `${one.a} arguments`));
    for (const flag of one.f) head.append(make("span", "badge flag", flag));
    const article = make("article", "card", head, line(one), ...output(one), ...changes(one));
    article.setAttribute("aria-labelledby", title.id);
    return make("li", "", article);
  };

  options(byId("command"), samples.map((one) => one.c));
  options(byId("exit"), samples.map((one) => one.x));
  browse(10, ["sample", "samples"], choose, card);
})();
