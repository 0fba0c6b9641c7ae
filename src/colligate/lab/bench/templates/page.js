"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  /* An element: texts become text, never markup. */
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== undefined && value !== null) element.setAttribute(name, value);
    }
    for (const child of children) if (child) element.append(child);
    return element;
  };

  /* Numbers that papers print */
  const published = find("published");
  if (published) {
    published.hidden = false;
    published.addEventListener("change", (event) => {
      for (const row of document.querySelectorAll(`tr[data-model="${event.target.value}"]`)) {
        row.classList.toggle("off", !event.target.checked);
      }
    });
  }

  /* Questions */
  const { methods, verdicts, questions } = JSON.parse(find("data").textContent);
  const glyphs = { "right": "✓", "partly right": "~", "not judged": "·", "wrong": "✗", "refused": "∅", "failed": "!" };
  const kind = (verdict) => `k-${verdict.replace(" ", "-")}`;
  const step = 40;
  let chosen = [], shown = 0;

  const option = (select, value, text) => select.append(make("option", { value }, text));
  const datasets = [...new Set(questions.map((each) => each.dataset))];
  datasets.forEach((name) => option(find("by-dataset"), name, name));
  find("by-dataset").parentElement.hidden = datasets.length < 2;
  methods.forEach((label, number) => option(find("by-method"), number, label));
  const there = new Set(questions.flatMap((each) => each.answers.map((answer) => answer.v)));
  verdicts.forEach((name, number) => { if (there.has(number)) option(find("by-verdict"), number, name); });
  if (methods.length > 1) option(find("by-verdict"), "apart", "strategies disagree");

  const hay = (each) => (each.hay ??= [each.text, each.id, ...each.gold,
    ...each.answers.flatMap((answer) => [answer.text, answer.short, answer.error])].join("\n").toLowerCase());

  const wanted = () => {
    const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const dataset = find("by-dataset").value, method = find("by-method").value, verdict = find("by-verdict").value;
    return questions.filter((each) => {
      if (dataset && each.dataset !== dataset) return false;
      const answers = each.answers.filter((answer) => method === "" || answer.m === Number(method));
      if (!answers.length) return false;
      if (verdict === "apart") {
        if (new Set(each.answers.map((answer) => answer.v)).size < 2) return false;
      } else if (verdict !== "" && !answers.some((answer) => answer.v === Number(verdict))) return false;
      return words.every((word) => hay(each).includes(word));
    });
  };

  /* A text with the right answers marked in it. */
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const marker = (gold) => {
    const golds = gold.filter((text) => text.trim().length > 1).map(escaped).sort((a, b) => b.length - a.length);
    return golds.length ? new RegExp(`(${golds.join("|")})`, "giu") : null;
  };
  const marked = (text, pattern) => {
    const parts = document.createDocumentFragment();
    const pieces = pattern ? text.split(pattern) : [text];
    pieces.forEach((piece, at) => { if (piece) parts.append(at % 2 ? make("mark", {}, piece) : piece); });
    return parts;
  };

  const withMarks = (answer, name, pattern) => {
    const parts = document.createDocumentFragment();
    for (const piece of answer.text.split(/(\[\d+\]|\[uncited\])/)) {
      const number = /^\[(\d+)\]$/.exec(piece)?.[1];
      if (number && answer.citations[number - 1] !== undefined) {
        parts.append(make("a", { class: "cite", href: `#${name}-${number}` }, number));
      } else if (piece === "[uncited]") {
        parts.append(make("span", { class: "uncited" }, "uncited"));
      } else parts.append(marked(piece, pattern));
    }
    return parts;
  };

  const passages = (numbers, pieces, pattern, name) => {
    const list = make("ol");
    numbers.forEach((number, at) => {
      const { title, text } = pieces[number];
      list.append(make("li", { id: name && `${name}-${at + 1}`, dir: "auto" },
        make("b", {}, title), " ", make("span", {}, marked(text, pattern))));
    });
    return list;
  };

  const folded = (title, content) => make("details", {}, make("summary", {}, title), content);
  const figures = (of) => {
    const line = make("p", { class: "figures" });
    for (const [name, value] of Object.entries(of)) line.append(make("span", {}, `${name} `, make("b", {}, value)));
    return line;
  };
  const lines = (texts) => make("ul", {}, ...texts.map((text) => make("li", {}, text)));

  const card = (question, answer, place, pattern) => {
    const name = `answer-${place}-${answer.m}`, verdict = verdicts[answer.v];
    const box = make("article", { class: "answer" },
      make("h4", {}, methods[answer.m], make("span", { class: `pill ${kind(verdict)}` }, verdict)));
    if (answer.error) box.append(make("p", { class: "said error" }, answer.error));
    else if (answer.text) box.append(make("p", { class: "said", dir: "auto" }, withMarks(answer, name, pattern)));
    else if (!answer.short) box.append(make("p", { class: "said" }, "Not in these documents."));
    if (answer.short) box.append(make("p", { class: "short", dir: "auto" }, "In short: ", marked(answer.short, pattern)));
    if (answer.citations.length) box.append(passages(answer.citations, question.pieces, pattern, name));
    if (answer.evidence.length) {
      const more = answer.unshown ? `, ${answer.unshown} more not in this page` : "";
      box.append(folded(`What it was shown (${answer.evidence.length}${more})`,
        passages(answer.evidence, question.pieces, pattern)));
    }
    if (Object.keys(answer.metrics).length) box.append(folded("Measures", figures(answer.metrics)));
    if (Object.keys(answer.unmeasured).length) {
      box.append(folded("Not measured", lines(Object.entries(answer.unmeasured).map(([n, why]) => `${n}: ${why}`))));
    }
    if (answer.warnings.length) box.append(folded(`Warnings (${answer.warnings.length})`, lines(answer.warnings)));
    if (answer.trace) box.append(make("p", { class: "figures" }, make("a", { href: answer.trace }, "trace")));
    return box;
  };

  const item = (question, place) => {
    const dots = make("span", { class: "dots" });
    for (const answer of question.answers) {
      const verdict = verdicts[answer.v], title = `${methods[answer.m]}: ${verdict}`;
      dots.append(make("span", { class: `dot ${kind(verdict)}`, title, role: "img", "aria-label": title }, glyphs[verdict]));
    }
    const details = make("details", {},
      make("summary", {}, make("span", { class: "asked", dir: "auto" }, question.text), dots));
    details.addEventListener("toggle", () => {
      if (!details.open || details.children.length > 1) return;
      const pattern = marker(question.gold), method = find("by-method").value;
      const gold = !question.answerable ? "The documents hold no answer."
        : question.gold.length ? `Right: ${question.gold.join(" · ")}` : "";
      const body = make("div", { class: "body" }, make("p", { class: "gold-line", dir: "auto" },
        gold, make("span", { class: "id" }, `${question.dataset} · ${question.id}`)));
      for (const answer of question.answers) {
        if (method === "" || answer.m === Number(method)) body.append(card(question, answer, place, pattern));
      }
      details.append(body);
    });
    return make("li", {}, details);
  };

  const more = () => {
    const list = find("list");
    for (const question of chosen.slice(shown, shown + step)) list.append(item(question, shown++));
    find("more").hidden = shown >= chosen.length;
    const all = chosen.length === questions.length ? "" : ` of ${questions.length.toLocaleString("en")}`;
    find("count").textContent = `${chosen.length.toLocaleString("en")}${all} question${chosen.length === 1 ? "" : "s"}`;
  };
  const refresh = () => { chosen = wanted(); shown = 0; find("list").replaceChildren(); more(); };

  let waiting;
  find("filters").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 120); });
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("more").addEventListener("click", more);
  find("filters").hidden = false;
  refresh();
})();
