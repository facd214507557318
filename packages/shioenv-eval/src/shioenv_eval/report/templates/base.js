"use strict";
const byId = (id) => document.getElementById(id);

/** An element with a class and children; text always becomes a text node. */
const make = (name, className, ...children) => {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children);
  return element;
};

/**
 * The list of cards below a form: those that `choose` gives, `size` on a page, chosen anew whenever
 * a field of the form changes.
 */
const browse = (size, nouns, choose, card) => {
  const form = byId("filter");
  const list = byId("list");
  let shown = [];
  let first = 0;

  const show = () => {
    const page = shown.slice(first, first + size);
    list.replaceChildren(...page.map(card));
    if (!page.length) list.append(make("li", "card empty", `No ${nouns[0]} matches.`));
    byId("shown").textContent = page.length
      ? `${first + 1} to ${first + page.length} of ${shown.length.toLocaleString("en")}`
      : `0 ${nouns[1]}`;
    for (const button of document.querySelectorAll(".previous")) button.disabled = first === 0;
    for (const button of document.querySelectorAll(".next")) {
      button.disabled = first + size >= shown.length;
    }
  };

  const turn = (step) => {
    first = Math.max(0, first + step);
    show();
    byId("shown").scrollIntoView({ block: "center" });
  };

  const select = () => {
    shown = choose();
    first = 0;
    show();
  };

  form.hidden = false;
  for (const field of form.querySelectorAll("input")) field.addEventListener("input", select);
  for (const field of form.querySelectorAll("select")) field.addEventListener("change", select);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(select));
  for (const button of document.querySelectorAll(".previous")) {
    button.addEventListener("click", () => turn(-size));
  }
  for (const button of document.querySelectorAll(".next")) {
    button.addEventListener("click", () => turn(size));
  }
  select();
};
