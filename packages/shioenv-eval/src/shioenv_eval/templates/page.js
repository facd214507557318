(() => {
  const { names, cases } = JSON.parse(byId("data").textContent);

  const option = (select, value, text) => {
    const element = make("option", "", text);
    element.value = value;
    select.append(element);
  };

  const texts = (one, answer) =>
    [one.t, ...one.h, ...answer.o.map((row) => row[1]), ...answer.p.map((row) => row[1]), answer.w]
      .join("\n")
      .toLowerCase();

  const verdicts = {
    all: () => true,
    wrong: (answer) => !answer.r[0] && !answer.r[1],
    right: (answer) => answer.r[0] || answer.r[1],
    output: (answer) => !answer.r[2],
    patch: (answer) => !answer.r[3],
    exit: (answer) => !answer.r[4],
    none: (answer) => answer.k !== "answered",
    volatile: (_, one) => one.v.length > 0,
  };

  const choose = () => {
    const query = byId("query").value.toLowerCase();
    const place = Number(byId("predictor").value);
    const verdict = verdicts[byId("verdict").value];
    const steps = byId("steps").value;
    const utility = byId("utility").value;
    return cases.filter(
      (one) =>
        (!steps || one.s === steps) &&
        (!utility || one.u.includes(utility)) &&
        verdict(one.a[place], one) &&
        (!query || texts(one, one.a[place]).includes(query)),
    );
  };

  /** A line with what is between the common beginning and end of its partner marked. */
  const marked = (text, other) => {
    if (other === null) return [text];
    const least = Math.min(text.length, other.length);
    let start = 0;
    while (start < least && text[start] === other[start]) start += 1;
    let end = 0;
    while (end < least - start && text.at(-1 - end) === other.at(-1 - end)) end += 1;
    if (start + end < text.length / 4) return [text];
    const middle = text.slice(start, text.length - end);
    return [text.slice(0, start), make("mark", "", middle), text.slice(text.length - end)];
  };

  const signs = { "=": "", "-": "minus", "+": "plus", "…": "more" };
  const spoken = { "-": "missing: ", "+": "unexpected: " };

  const diff = (rows, label) => {
    const element = make("div", "diff");
    element.tabIndex = 0;
    element.setAttribute("role", "region");
    element.setAttribute("aria-label", label);
    let place = 0;
    while (place < rows.length) {
      let end = place;
      while (end < rows.length && rows[end][0] === rows[place][0]) end += 1;
      const kind = rows[place][0];
      let after = end;
      while (kind === "-" && after < rows.length && rows[after][0] === "+") after += 1;
      const gone = rows.slice(place, end);
      const come = rows.slice(end, after);
      const pairs = gone.length === come.length;
      const line = (row, other) => {
        const sign = make("span", "", row[0] === "=" ? "" : row[0] === "-" ? "−" : row[0]);
        sign.setAttribute("aria-hidden", "true");
        const text = make("span", "", ...marked(row[1], other));
        if (spoken[row[0]]) text.prepend(make("span", "unseen", spoken[row[0]]));
        element.append(make("div", signs[row[0]], sign, text));
      };
      gone.forEach((row, index) => line(row, pairs ? come[index][1] : null));
      come.forEach((row, index) => line(row, pairs ? gone[index][1] : null));
      place = Math.max(end, after);
    }
    return element;
  };

  const badge = (good, text) => make("span", `badge ${good ? "good" : "bad"}`, text);

  const card = (one) => {
    const answer = one.a[Number(byId("predictor").value)];
    const head = make("div", "head", make("h3", "", one.i));
    const right = answer.r[0] || answer.r[1];
    const verdict = answer.r[0] ? "right" : answer.r[1] ? "right except for volatile parts" : "wrong";
    if (answer.k === "answered") {
      head.append(badge(right, verdict));
      if (!answer.r[2] && !answer.r[1]) head.append(badge(false, "output"));
      if (!answer.r[3] && !answer.r[1]) head.append(badge(false, "patch"));
    } else {
      head.append(badge(false, answer.k.replace("_", " ")));
    }
    const codes = answer.r[4] ? `exit code ${answer.e[0]}` : `exit code ${answer.e[1]} instead of ${answer.e[0]}`;
    if (answer.e[1] !== null) head.append(badge(answer.r[4], codes));
    head.append(make("span", "badge", one.s));
    if (one.v.length) head.append(make("span", "badge flag", `varies: ${one.v.join(", ")}`));
    if (answer.f !== undefined) head.append(make("span", "badge", `confidence ${answer.f}`));
    const article = make("article", "card", head);
    if (one.c) article.append(make("p", "part", `in ${one.c}`));
    for (const text of one.h) article.append(make("pre", "line before", text));
    article.append(make("pre", "line", one.t));
    if (answer.o.length) article.append(diff(answer.o, `Output of ${one.i}`));
    else article.append(make("p", "none", "No output, as answered."));
    if (answer.p.length) {
      article.append(make("p", "part", "Changes"), diff(answer.p, `Changes of ${one.i}`));
    }
    if (answer.w) article.append(make("p", "note", answer.w));
    return make("li", "", article);
  };

  names.forEach((name, place) => option(byId("predictor"), place, name));
  const initial = Math.max(0, names.findIndex((name) => name !== "sandbox"));
  byId("predictor").options[initial]?.setAttribute("selected", "");
  byId("predictor").selectedIndex = initial;
  const used = new Map();
  for (const one of cases) for (const name of one.u) used.set(name, (used.get(name) || 0) + 1);
  for (const name of [...used.keys()].sort()) option(byId("utility"), name, `${name} (${used.get(name)})`);
  browse(15, ["answer", "answers"], choose, card);
})();
