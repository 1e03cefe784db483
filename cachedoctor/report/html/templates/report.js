// Sorting and filtering of the table, and copy buttons. Text reaches the page as text only, never as markup.
"use strict";
(() => {
  const CHUNK = 100;
  const byId = (id) => document.getElementById(id);
  const number = (n) => n.toLocaleString("en-US");
  const known = (n) => (n === null ? "unknown" : number(n));

  const duration = (ms) => {
    if (ms === null) return "unknown";
    if (ms < 999.5) return `${Math.round(ms)} ms`;
    if (ms < 59950) return `${(ms / 1000).toFixed(1)} s`;
    const seconds = Math.round(ms / 1000), minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, "0")} s`;
    return `${number(Math.floor(minutes / 60))} h ${String(minutes % 60).padStart(2, "0")} min`;
  };

  const element = (name, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  function copyButtons() {
    for (const code of document.querySelectorAll("[data-copy]")) {
      const button = element("button", "Copy");
      button.type = "button";
      button.setAttribute("aria-label", `Copy ${code.textContent}`);
      button.addEventListener("click", async () => {
        let done = true;
        try {
          await navigator.clipboard.writeText(code.textContent);
        } catch {
          getSelection().selectAllChildren(code);
          done = document.execCommand("copy");
        }
        button.textContent = done ? "Copied" : "Press Ctrl+C";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
      code.after(button);
    }
  }

  function table() {
    const data = JSON.parse(byId("data").textContent);
    const rows = data.rows.map((row) => Object.fromEntries(data.columns.map((name, i) => [name, row[i]])));
    const head = byId("table").tHead, body = byId("table").tBodies[0], more = byId("more"), form = byId("filters");
    const total = Number(byId("table").dataset.total);
    const heads = [...head.rows[0].cells], keys = heads.map((cell) => cell.dataset.key);
    const thread = (row) => row.thread === null ? "unknown" : number(row.thread) + (row.turn === null ? "" : ` (${number(row.turn)})`);
    const cells = {
      index: (row) => number(row.index),
      when: (row) => row.when ?? "unknown",
      slot: (row) => data.slots[row.slot].replace(/^slot /, ""),
      task: (row) => number(row.task),
      thread,
      prompt: (row) => known(row.prompt),
      reused: (row) => known(row.reused),
      recomputed: (row) => known(row.recomputed),
      new: (row) => known(row.new),
      ms: (row) => duration(row.ms),
      outcome: (row) => row.outcome,
      codes: (row) => row.codes.join(" "),
      lines: (row) => `${row.first_line}-${row.last_line}`,
    };
    const values = {
      when: (row) => (row.when === null ? null : row.index),
      thread: (row) => (row.thread === null ? null : row.thread * 1e6 + (row.turn ?? 0)),
      codes: (row) => row.codes.join(" ") || null,
      lines: (row) => row.first_line,
    };
    for (const row of rows) {
      const said = [row.task, row.when, data.slots[row.slot], row.outcome, row.first_line, row.last_line, data.paths[row.path], row.asked];
      row.text = [...said, ...row.codes, ...row.codes.map((code) => data.names[code])].join(" ").toLowerCase();
    }
    let sorted = "index", down = false, found = rows, limit = CHUNK;

    const options = (id, any, values) => byId(id).append(...[["", any], ...values].map(([value, name]) => {
      const option = element("option", name);
      option.value = value;
      return option;
    }));
    options("f-outcome", "all", [...new Set(rows.map((row) => row.outcome))].sort().map((name) => [name, name]));
    options("f-slot", "all", data.slots.map((name, i) => [String(i), name.replace(/^slot /, "")]));
    const codes = [...new Set(rows.flatMap((row) => row.codes))].sort();
    options("f-code", "all", [["-", "none"], ...codes.map((code) => [code, `${code} ${data.names[code] ?? ""}`])]);

    const shape = (kind, x, width) => {
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [name, value] of Object.entries({ class: `k-${kind}`, x, width, height: 5 })) rect.setAttribute(name, value);
      return rect;
    };

    const bar = (row) => {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      for (const [name, value] of Object.entries({ class: "mini", viewBox: "0 0 100 5", preserveAspectRatio: "none", "aria-hidden": "true" })) svg.setAttribute(name, value);
      let x = 0;
      for (const kind of ["reused", "recomputed", "new", "unsure"]) {
        const width = (100 * (row[kind] ?? 0)) / row.prompt;
        if (width > 0) svg.append(shape(kind, x, width));
        x += width;
      }
      return svg;
    };

    const made = (row) => {
      const line = element("tr");
      for (const key of keys) {
        const cell = element("td", cells[key](row));
        cell.dataset.key = key;
        if (key === "prompt" && row.prompt && row.reused !== null) cell.append(bar(row));
        if (key === "codes" && row.codes.length) cell.title = row.codes.map((code) => `${code} ${data.names[code] ?? ""}`).join(", ");
        if (key === "lines") cell.title = data.paths[row.path] + (row.asked ? `, from ${row.asked}` : "");
        if (cell.textContent === "unknown" || (row[key] === 0 && ["reused", "recomputed", "new"].includes(key))) cell.className = "quiet";
        line.append(cell);
      }
      return line;
    };

    const say = () => {
      const missing = total > rows.length ? ` This page has only the ${number(rows.length)} of ${number(total)} requests with the most lost tokens; cachedoctor analyze LOG -o requests.csv writes all requests.` : "";
      const shown = Math.min(limit, found.length);
      byId("shown").textContent = `${number(found.length)} of ${number(rows.length)} requests match` + (shown < found.length ? `, ${number(shown)} of them shown.` : ".") + missing;
      more.hidden = shown >= found.length;
      more.textContent = `Show ${number(Math.min(CHUNK, found.length - shown))} more`;
    };

    const draw = () => {
      limit = CHUNK;
      body.replaceChildren(...found.slice(0, limit).map(made));
      say();
    };

    const sort = () => {
      const value = values[sorted] ?? ((row) => row[sorted]);
      const way = down ? -1 : 1;
      found.sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === y) return a.index - b.index;
        if (x === null || y === null) return x === null ? 1 : -1; // what is unknown comes last, either way
        return (x < y ? -1 : 1) * way;
      });
    };

    const filter = () => {
      const outcome = byId("f-outcome").value, slot = byId("f-slot").value, code = byId("f-code").value;
      const words = byId("f-text").value.toLowerCase().split(/\s+/).filter(Boolean);
      found = rows.filter((row) =>
        (!outcome || row.outcome === outcome) && (!slot || row.slot === Number(slot)) &&
        (!code || (code === "-" ? !row.codes.length : row.codes.includes(code))) && words.every((word) => row.text.includes(word)));
      sort();
      draw();
    };

    heads.forEach((cell) => {
      const button = element("button", cell.textContent);
      button.type = "button";
      button.addEventListener("click", () => {
        const key = cell.dataset.key;
        // Numbers begin with the largest: that is what one looks for.
        down = key === sorted ? !down : ["prompt", "reused", "recomputed", "new", "ms"].includes(key);
        sorted = key;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort();
        draw();
      });
      cell.replaceChildren(button);
    });
    heads[0].setAttribute("aria-sort", "ascending");
    more.addEventListener("click", () => {
      body.append(...found.slice(limit, limit + CHUNK).map(made));
      limit += CHUNK;
      say();
    });
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(filter));
    for (const link of document.querySelectorAll("a[data-code]")) {
      link.addEventListener("click", () => {
        form.reset();
        byId("f-code").value = link.dataset.code;
        setTimeout(filter);
      });
    }
    form.hidden = false;
    draw();
  }

  copyButtons();
  if (byId("data")) table();
})();
