"use strict";

/* What is said about the chosen cell, and about the step. */

const MOST_READ = 12;

class Detail {
  /** `go(step)` and `choose(variable, position)` are called by the buttons in the text. */
  constructor(trace, go, choose) {
    this.trace = trace;
    this.go = go;
    this.choose = choose;
    this.cell = document.getElementById("cell");
    this.sublayer = document.getElementById("sublayer");
  }

  /** Explains, and returns what the table is to show for it: marked cells, arcs, and the label of these. */
  render(step, variable, position) {
    this.step = step;
    this.marks = [];
    this.arcs = [];
    this.label = "";
    if (this.trace.positions) this.describeCell(variable, position);
    this.describeStep(variable, position);
    return this;
  }

  describeCell(variable, position) {
    const { trace, step } = this;
    const text = trace.text(step, variable, position);
    this.cell.replaceChildren(
      element(
        "h2",
        { id: "cell-title" },
        element("code", {}, trace.variables[variable].name),
        " at position ",
        ...this.where(position),
      ),
      element("p", { className: "value" }, this.valueText(text)),
      ...(trace.isOutput(variable) ? this.aboutOutput(variable, position) : this.aboutVariable(variable, position)),
      ...this.aboutVector(variable, position),
    );
  }

  valueText(text) {
    return element("code", {}, { "∅": "∅ empty", "?": "? undefined" }[text] || text);
  }

  where(position) {
    return [String(position), " ", element("q", {}, this.trace.inputs[position])];
  }

  aboutOutput(variable, position) {
    const { trace, step } = this;
    const number = trace.headOf.get(variable);
    const head = trace.heads[number];
    if (step % 2 === 0) {
      if (step === 0) return [element("p", {}, "Empty until its head reads, in layer 1.")];
      const was = trace.text(step - 1, variable, position);
      return [
        element("p", {}, "The MLP empties what heads have written, in every layer. Here it was ", this.valueText(was), "."),
        this.button(`Back to the attention of layer ${step / 2}`, () => this.go(step - 1)),
      ];
    }
    const read = trace.reads(step, number, position);
    this.showReading(number, position);
    trace.inputs.forEach((_, to) => {
      if (to !== position) for (const from of trace.reads(step, number, to)) this.arcs.push({ from, to, faint: true });
    });
    return [this.aboutHead(head, position), this.verdict(head, read), ...this.aboutRead(head, read)];
  }

  /** Marks what a head looks at for one position, and draws what it reads. */
  showReading(number, position) {
    const head = this.trace.heads[number];
    const read = this.trace.reads(this.step, number, position);
    if (head.query !== null) this.marks.push([head.query, position, "q"]);
    for (const from of read) {
      if (head.key !== null) this.marks.push([head.key, from, "k"]);
      this.marks.push([head.value, from, "v"]);
      this.arcs.push({ from, to: position });
    }
    this.label = [this.label, this.name(head.output)].filter(Boolean).join(", ");
  }

  name(variable) {
    return this.trace.variables[variable].name;
  }

  code(text) {
    return element("code", {}, text);
  }

  aboutHead(head, position) {
    const { trace, step } = this;
    const sentence = element("p", {}, "The head reads ", this.code(this.name(head.value)));
    if (head.query !== null && head.key !== null) {
      const query = trace.text(step, head.query, position);
      const among = query.startsWith("{") ? " is among " : " = ";
      sentence.append(" where ", this.code(this.name(head.key)), among, this.code(this.name(head.query)));
      sentence.append(", here ", this.code(query));
    }
    if (head.relative) {
      const offsets = head.relative.map((offset) => (offset > 0 ? `+${offset}` : String(offset)).replace("-", "−"));
      sentence.append(head.relative.length > 1 ? ", at the offsets " : ", at the offset ", offsets.join(", "));
    }
    sentence.append(trace.data.causal ? ", up to its own position." : ".");
    return sentence;
  }

  verdict(head, read) {
    const many = `${read.length} position${read.length === 1 ? "" : "s"}`;
    if (!read.length) return element("p", {}, "It reads no position, so its output is undefined.");
    if (head.mean) return element("p", {}, `It takes the mean of ${many}:`);
    if (read.length === 1) return element("p", {}, "It reads one position, and takes its value:");
    return element("p", {}, `It reads ${many}, and not exactly one, so its output is undefined:`);
  }

  aboutRead(head, read) {
    const { trace, step } = this;
    if (!read.length) return [];
    const list = element("ul", { className: "read" });
    for (const from of read.slice(0, MOST_READ)) {
      const value = trace.text(step, head.value, from);
      const go = this.button("", () => this.choose(head.value, from));
      go.append("position ", ...this.where(from));
      list.append(element("li", {}, go, this.code(value)));
    }
    if (read.length > MOST_READ) list.append(element("li", {}, `and ${read.length - MOST_READ} more`));
    return [list];
  }

  aboutVariable(variable, position) {
    const { trace, step } = this;
    const rule = trace.ruleFor(step, variable, position);
    if (rule !== undefined) return this.aboutRule(trace.rules[rule], position);
    const last = trace.lastChange(step, variable, position);
    if (last === 0) return [element("p", {}, this.startText(variable, position))];
    const layer = `the MLP of layer ${last / 2}`;
    const set = trace.rules[trace.ruleFor(last, variable, position)];
    return [
      element("p", {}, `Last set by ${layer}, by the rule`),
      element("p", { className: "rule" }, this.ruleText(set)),
      this.button(`Back to ${layer}`, () => this.go(last)),
    ];
  }

  startText(variable, position) {
    const since = this.step ? "Unchanged since the start, where it is given " : "Given ";
    switch (this.trace.variables[variable].start) {
      case "token":
        return `${since}by the token, “${this.trace.inputs[position]}”.`;
      case "position":
        return `${since}by the position, ${position}.`;
      default:
        return `${since}as a constant, everywhere the same.`;
    }
  }

  ruleText(rule) {
    const parts = rule.if.map(([variable, value]) => `${this.name(variable)}=${value}`);
    return `${parts.join(" ∧ ") || "always"} ⟹ ${this.name(rule.set)} := ${rule.to}`;
  }

  /** The rule that fired, a line for each constraint, with what the MLP found there. */
  aboutRule(rule, position) {
    const { trace, step } = this;
    const list = element("ul", { className: "antecedent" });
    for (const [variable, value] of rule.if) {
      this.marks.push([variable, position, "if"]);
      const held = trace.text(step - 1, variable, position);
      const line = element("li", {}, this.code(`${this.name(variable)} = ${value}`));
      if (held !== value) line.append(element("small", {}, `nearest to ${held}`));
      const head = trace.headOf.get(variable);
      if (head !== undefined) {
        this.step = step - 1;
        const read = trace.reads(step - 1, head, position);
        this.showReading(head, position);
        this.step = step;
        const from = read.length === 1 ? `read from position ${read[0]}` : `read from ${read.length} positions`;
        line.append(this.button(from, () => (this.choose(variable, position), this.go(step - 1))));
      }
      list.append(line);
    }
    this.marks = this.marks.filter(([, , letter]) => letter === "if");
    return [
      element("p", {}, "Set in this step, by the rule"),
      list,
      element("p", { className: "update" }, "⟹ ", this.code(`${this.name(rule.set)} := ${rule.to}`)),
    ];
  }

  aboutVector(variable, position) {
    const { trace, step } = this;
    const { slice, numerical, domain } = trace.variables[variable];
    const title = element("h3", {}, "In the Transformer");
    if (!slice) return [title, element("p", {}, `There is none: ${trace.data.model.reason}`)];
    const [start, width] = slice;
    const entries = trace.vector(step, variable, position);
    const numbers = new Array(width).fill(0);
    for (let i = 0; i < entries.length; i += 2) numbers[entries[i]] = entries[i + 1];
    const dims = width === 1 ? `Dimension ${start}` : `Dimensions ${start}–${start + width - 1}`;
    const text = trace.text(step, variable, position);
    const meaning = { "∅": "all 0: empty", "?": "a mixture, which no rule may read" }[text];
    const shown = element("figure", { className: "vector" });
    if (numerical) shown.append(this.code(String(numbers[0])));
    else shown.append(bars(numbers), element("div", { className: "scale" }, element("span", {}, "0"), element("span", {}, String(width - 1))));
    const kind = numerical ? "a number" : text.startsWith("{") ? "1 for each member" : "one-hot";
    shown.append(
      element("figcaption", {}, `${dims} of ${trace.data.model.dims} (${domain}): ${meaning || `${kind}, decoded as `}`, ...(meaning ? [] : [this.code(text)])),
    );
    return [title, shown];
  }

  describeStep(variable, position) {
    const { trace, step } = this;
    const title = element("h2", { id: "sublayer-title" }, trace.stepName(step));
    if (step === 0) this.sublayer.replaceChildren(title, element("p", {}, "Each variable as the token, the position or a constant gives it."));
    else if (step % 2) this.sublayer.replaceChildren(title, ...this.headList(variable, position));
    else this.sublayer.replaceChildren(title, ...this.ruleList(position));
  }

  headList(variable, position) {
    const { trace, step } = this;
    if (!trace.heads.length) return [element("p", {}, "There are no heads.")];
    const list = element("ul", { className: "heads" });
    for (const head of trace.heads) {
      const texts = trace.inputs.map((_, at) => trace.text(step, head.output, at));
      const defined = texts.filter((text) => text !== "?").length;
      const line = this.button("", () => this.choose(head.output, position));
      line.append(this.code(this.name(head.output)));
      if (head.output === variable) line.setAttribute("aria-current", "true");
      list.append(element("li", {}, line, element("small", {}, `defined at ${defined} of ${texts.length}`)));
    }
    return [element("p", {}, "All heads read at once, each the state of the step before."), list];
  }

  ruleList(position) {
    const { trace, step } = this;
    const places = new Map();
    for (const [at, rules] of trace.fired(step)) {
      for (const rule of rules) places.set(rule, [...(places.get(rule) || []), at]);
    }
    const resets = trace.heads.reduce(
      (sum, head) => sum + trace.inputs.filter((_, at) => trace.text(step - 1, head.output, at) !== "?").length, 0,
    );
    const fired = [...places.values()].reduce((sum, list) => sum + list.length, 0);
    const list = element("ul", { className: "fired" });
    for (const [number, at] of [...places].sort((a, b) => b[1].length - a[1].length)) {
      const rule = trace.rules[number];
      const next = at.find((place) => place > position) ?? at[0];
      const line = this.button("", () => this.choose(rule.set, next));
      line.append(this.code(this.ruleText(rule)));
      const where = at.length === 1 ? `at position ${at[0]}` : `at ${at.length} positions`;
      list.append(element("li", {}, line, element("small", {}, where)));
    }
    const count = fired ? `Rules fired ${fired} time${fired === 1 ? "" : "s"}:` : "No rule fired.";
    const end = resets ? [element("p", {}, `${resets} reset${resets === 1 ? "" : "s"} of attention outputs.`)] : [];
    return [element("p", {}, count), list, ...end];
  }

  button(text, action) {
    const made = element("button", { type: "button", className: "text" }, text);
    made.addEventListener("click", action);
    return made;
  }
}

/** A bar for each number, between 0 and 1. */
function bars(numbers) {
  const drawn = svg("svg", { viewBox: `0 0 ${numbers.length} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  numbers.forEach((number, place) => {
    drawn.append(svg("rect", { class: "slot", x: place + 0.06, y: 0, width: 0.88, height: 1 }));
    const height = Math.min(1, Math.abs(number));
    if (height) drawn.append(svg("rect", { class: "bar", x: place + 0.06, y: 1 - height, width: 0.88, height }));
  });
  return drawn;
}
