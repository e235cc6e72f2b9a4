"use strict";

/* The table of variables by positions, and the arcs above it. */

const MOST_LETTERS = 9;
const MOST_ARCS = 400;
const ARCS_HEIGHT = 72;

class Table {
  /** `choose(variable, position)` is called when a cell is clicked. */
  constructor(trace, choose) {
    this.trace = trace;
    this.table = document.getElementById("table");
    this.svg = document.getElementById("arcs");
    this.rows = [];
    this.cells = []; // by variable, then position
    this.shown = []; // what each cell shows: its number, and whether it is marked as changed
    this.marked = [];
    this.vectors = false;
    this.middles = null;
    this.build();
    this.table.addEventListener("click", (event) => {
      const cell = event.target.closest("td");
      if (cell) choose(...this.place(cell));
    });
  }

  build() {
    const { trace } = this;
    const widths = columnWidths(trace);
    const name = Math.max(8, ...trace.variables.map((variable) => variable.name.length + badges(trace, variable).length));
    const roomy = trace.positions <= 14 && trace.variables.length <= 16;
    document.body.classList.toggle("roomy", roomy);
    this.table.parentElement.style.setProperty("--name", Math.min(name, 26));
    const columns = widths.map((width) => {
      const column = element("col");
      column.style.width = `calc(${Math.max(width, roomy ? 4 : 2)}ch + var(--room))`;
      return column;
    });
    const total = widths.reduce((sum, width) => sum + Math.max(width, roomy ? 4 : 2), 0);
    this.table.style.width = `calc(var(--stub) + ${total}ch + ${trace.positions} * var(--room))`;
    const positions = trace.inputs.map((token, position) =>
      element(
        "th",
        { scope: "col", title: `position ${position}: ${token}` },
        element("small", {}, String(position)),
        element("span", {}, token),
      ),
    );
    this.heads = positions;
    this.table.append(
      element("colgroup", {}, element("col", { className: "stub" }), ...columns),
      element("thead", {}, element("tr", {}, element("th", { scope: "col", className: "stub" }, "position"), ...positions)),
    );
    this.group("Variables", (variable) => !trace.isOutput(variable));
    this.group("Attention outputs", (variable) => trace.isOutput(variable));
  }

  group(title, belongs) {
    const { trace } = this;
    const numbers = trace.variables.map((_, number) => number).filter(belongs);
    if (!numbers.length) return;
    const heading = element("th", { scope: "rowgroup", colSpan: trace.positions + 1, className: "group" }, element("span", {}, title));
    const body = element("tbody", {}, element("tr", {}, heading));
    for (const number of numbers) body.append(this.row(number));
    this.table.append(body);
  }

  row(number) {
    const { trace } = this;
    const variable = trace.variables[number];
    const badge = badges(trace, variable);
    const header = element(
      "th",
      { scope: "row", className: "stub", title: `${variable.name}: ${variable.domain}` },
      element("span", {}, variable.name),
      ...(badge ? [element("small", {}, badge)] : []),
    );
    const cells = trace.inputs.map(() => element("td", { tabIndex: -1 }, document.createTextNode("")));
    this.cells[number] = cells;
    this.shown[number] = cells.map(() => "");
    this.rows[number] = element("tr", {}, header, ...cells);
    return this.rows[number];
  }

  place(cell) {
    const variable = this.rows.indexOf(cell.parentElement);
    return [variable, this.cells[variable].indexOf(cell)];
  }

  /** Brings every cell to a step, touching only those that look different there. */
  render(step) {
    const { trace } = this;
    for (let variable = 0; variable < this.rows.length; variable++) {
      for (let position = 0; position < trace.positions; position++) {
        const changed = trace.changed(step, variable, position);
        const was = changed ? trace.text(step - 1, variable, position) : "";
        const number = trace.cell(step, variable, position);
        const given = trace.given(step, variable, position);
        const look = `${number} ${changed} ${was} ${given} ${this.vectors}`;
        if (this.shown[variable][position] === look) continue;
        this.shown[variable][position] = look;
        const cell = this.cells[variable][position];
        cell.classList.toggle("given", given);
        this.draw(cell, variable, number, changed ? was : null);
      }
    }
  }

  draw(cell, variable, number, was) {
    const { values, cells } = this.trace.variables[variable];
    const text = values[cells[number][0]];
    cell.firstChild.data = text;
    cell.classList.toggle("changed", was !== null);
    cell.classList.toggle("null", text === "∅");
    cell.classList.toggle("undefined", text === "?");
    const spoken = { "∅": "empty", "?": "undefined" };
    if (was !== null || text in spoken) {
      const before = was === null ? "" : `, changed from ${spoken[was] || was}`;
      cell.setAttribute("aria-label", `${spoken[text] || text}${before}`);
    } else {
      cell.removeAttribute("aria-label");
    }
    cell.classList.toggle("long", text.length > MOST_LETTERS);
    if (text.length > MOST_LETTERS) cell.title = text;
    else cell.removeAttribute("title");
    let strip = cell.firstElementChild;
    if (this.vectors && !strip) cell.append((strip = element("i", { className: "strip" })));
    if (strip) strip.style.backgroundImage = this.vectors ? stripe(this.trace.variables[variable], number) : "";
  }

  /** Shows the chosen cell, the cells [variable, position, letter] that it depends on, and what was read. */
  mark(variable, position, marks, arcs, label) {
    for (const cell of this.marked) {
      cell.classList.remove("marked", "chosen");
      delete cell.dataset.mark;
      cell.removeAttribute("aria-selected");
      cell.tabIndex = -1;
    }
    this.marked = [];
    for (const [at, where, letter] of marks) {
      const cell = this.cells[at][where];
      cell.classList.add("marked");
      const { dataset } = cell;
      if (!(dataset.mark || "").includes(letter)) dataset.mark = (dataset.mark || "") + letter;
      this.marked.push(cell);
    }
    const chosen = this.cells[variable]?.[position];
    if (chosen) {
      chosen.classList.add("chosen");
      chosen.setAttribute("aria-selected", "true");
      chosen.tabIndex = 0;
      this.marked.push(chosen);
    }
    this.arc(arcs, label);
  }

  /** Where the columns are; they stay there until the window changes. */
  measure() {
    this.svg.style.width = `${this.table.offsetWidth}px`;
    return this.heads.map((head) => head.offsetLeft + head.offsetWidth / 2);
  }

  /** Draws what flows from one position to another; `faint` for what was read at other positions. */
  arc(arcs, label) {
    document.getElementById("arcs-label").textContent = label;
    this.svg.replaceChildren();
    const middles = (this.middles ??= this.measure());
    const drawn = arcs.length > MOST_ARCS ? arcs.filter((arc) => !arc.faint) : arcs;
    const furthest = Math.max(1, ...drawn.map(({ from, to }) => Math.abs(middles[to] - middles[from])));
    for (const { from, to, faint } of [...drawn].sort((a, b) => !!b.faint - !!a.faint)) {
      const kind = faint ? "faint" : "strong";
      this.svg.append(svg("path", { class: kind, d: bow(middles[from], middles[to], furthest) }));
      if (!faint) {
        this.svg.append(svg("circle", { cx: middles[from], cy: ARCS_HEIGHT - 4, r: 3 }));
        this.svg.append(svg("path", { class: "tip", d: tip(middles[to] + (from === to ? 9 : 0)) }));
      }
    }
  }

  /** Shows the rows that `wanted(variable)` says; returns how many. */
  filter(wanted) {
    this.rows.forEach((row, variable) => (row.hidden = !wanted(variable)));
    for (const body of this.table.tBodies) body.hidden = ![...body.rows].slice(1).some((row) => !row.hidden);
    return this.rows.filter((row) => !row.hidden).length;
  }

  visible() {
    return this.rows.map((_, variable) => variable).filter((variable) => !this.rows[variable].hidden);
  }

  /** Moves focus to a cell, and the cell to where it can be seen. */
  focus(variable, position) {
    this.cells[variable]?.[position]?.focus({ preventScroll: true });
    this.reveal(variable, position);
  }

  reveal(variable, position) {
    this.cells[variable]?.[position]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function badges(trace, variable) {
  const number = trace.variables.indexOf(variable);
  const { output, halt } = trace.data;
  const found = [];
  if (number === output) found.push("output");
  if (halt && number === halt[0]) found.push(`halts at ${halt[1]}`);
  return found.join(", ");
}

/** For each position, the letters that its longest text takes. */
function columnWidths(trace) {
  const widths = trace.inputs.map((token) => Math.min(token.length, MOST_LETTERS));
  for (const row of trace.rows) {
    for (let place = 0; place < row.length; place++) {
      const position = place % trace.positions;
      const { values, cells } = trace.variables[(place - position) / trace.positions];
      const letters = Math.min(values[cells[row[place]][0]].length, MOST_LETTERS);
      if (letters > widths[position]) widths[position] = letters;
    }
  }
  return widths;
}

/** A box for each dimension, as dark as its number; a numerical variable's one dimension is filled from the left. */
function stripe(variable, number) {
  if (!variable.slice) return "";
  const [, ...entries] = variable.cells[number];
  const dims = variable.slice[1];
  const ink = (share) => `color-mix(in srgb, var(--vector) ${Math.round(100 * Math.min(1, share))}%, transparent)`;
  if (variable.numerical) {
    const largest = Math.max(1e-300, ...variable.cells.map((cell) => Math.abs(cell[2] || 0)));
    const end = 100 * Math.abs(entries[1] || 0) / largest;
    return `linear-gradient(to right, ${ink(1)} ${end}%, transparent ${end}%)`;
  }
  const stops = [];
  for (let i = 0; i < entries.length; i += 2) {
    const [left, right] = [entries[i], entries[i] + 1].map((dim) => `${100 * dim / dims}%`);
    stops.push(`transparent ${left}`, `${ink(entries[i + 1])} ${left}`, `${ink(entries[i + 1])} ${right}`, `transparent ${right}`);
  }
  return stops.length ? `linear-gradient(to right, ${stops.join(", ")})` : "";
}

function svg(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** From one place to another: the further, the higher. */
function bow(from, to, furthest) {
  const low = ARCS_HEIGHT - 7;
  if (from === to) return `M ${from - 9} ${low} C ${from - 16} ${low - 30}, ${from + 16} ${low - 30}, ${from + 9} ${low}`;
  const rise = Math.min(furthest / 4, low - 8) * Math.sqrt(Math.abs(to - from) / furthest);
  const high = low - rise * 4 / 3; // the curve comes three quarters of the way to its handles
  return `M ${from} ${low} C ${from} ${high}, ${to} ${high}, ${to} ${low}`;
}

function tip(x) {
  return `M ${x - 4} ${ARCS_HEIGHT - 10} L ${x + 4} ${ARCS_HEIGHT - 10} L ${x} ${ARCS_HEIGHT - 2} Z`;
}
