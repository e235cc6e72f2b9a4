"use strict";

/* The run, as Python has written it. Variables, positions and steps are numbers. Step 0 is the start; odd steps follow
   attention, even ones the MLP, so layer n is the steps 2n - 1 and 2n. */

class Trace {
  constructor(data) {
    this.data = data;
    this.inputs = data.inputs;
    this.variables = data.variables;
    this.heads = data.heads;
    this.rules = data.rules;
    this.positions = data.inputs.length;
    this.last = data.states - 1;
    this.headOf = new Map(data.heads.map((head, number) => [head.output, number]));
    this.rows = unrolled(data.start, data.layers);
    this.selected = unrolled(new Array(data.heads.length * this.positions).fill(0), data.reads);
    this.firings = data.fired.map(firingsByPosition);
    this.firstChanges = this.findFirstChanges();
  }

  isOutput(variable) {
    return this.headOf.has(variable);
  }

  /** The number of a cell: outputs of heads are empty, which is 0, but after attention. */
  cell(step, variable, position) {
    const place = variable * this.positions + position;
    if (!this.isOutput(variable)) return this.rows[step >> 1][place];
    return step % 2 ? this.rows[(step + 1) >> 1][place] : 0;
  }

  /** The number of a value; equal numbers are equal values. */
  value(step, variable, position) {
    return this.variables[variable].cells[this.cell(step, variable, position)][0];
  }

  text(step, variable, position) {
    return this.variables[variable].values[this.value(step, variable, position)];
  }

  changed(step, variable, position) {
    return step > 0 && this.value(step, variable, position) !== this.value(step - 1, variable, position);
  }

  /** The last step, this one included, that changed the value; 0 if none did. */
  lastChange(step, variable, position) {
    while (step > 0 && !this.changed(step, variable, position)) step--;
    return step;
  }

  /** For each variable and position the first layer that sets it. */
  findFirstChanges() {
    const found = new Float64Array(this.data.start.length).fill(Infinity);
    this.data.layers.forEach((pairs, layer) => {
      for (let i = 0, place = 0; i < pairs.length; i += 2) {
        place += pairs[i];
        found[place] = Math.min(found[place], layer + 1);
      }
    });
    return found;
  }

  /** Whether a value is still the one that it started as. */
  given(step, variable, position) {
    return !this.isOutput(variable) && step >> 1 < this.firstChanges[variable * this.positions + position];
  }

  /** Whether the variable ever has another value than at the start. */
  everChanges(variable) {
    const [from, to] = [variable * this.positions, (variable + 1) * this.positions];
    const first = this.rows[0];
    return this.rows.some((row) => row.subarray(from, to).some((cell, i) => cell !== first[from + i]));
  }

  /** How many positions have another value than before this step. */
  changes(step, variable) {
    return this.inputs.filter((_, position) => this.changed(step, variable, position)).length;
  }

  /** The residual stream's slice under a value: [dimension, number, ...] of what is not 0; null without a model. */
  vector(step, variable, position) {
    const { slice, cells } = this.variables[variable];
    return slice && cells[this.cell(step, variable, position)].slice(1);
  }

  /** The positions that a head reads in the layer of a step. */
  reads(step, head, position) {
    const stretches = this.data.selections[this.selected[(step + 1) >> 1][head * this.positions + position]];
    const found = [];
    for (let i = 0; i < stretches.length; i += 2) {
      for (let j = stretches[i]; j <= stretches[i + 1]; j++) found.push(j);
    }
    return found;
  }

  /** The rules that fired in the MLP of a step, by position. */
  fired(step) {
    return (step > 0 && step % 2 === 0 && this.firings[step / 2 - 1]) || new Map();
  }

  /** The rule that set a value in this step. */
  ruleFor(step, variable, position) {
    return (this.fired(step).get(position) || []).find((rule) => this.rules[rule].set === variable);
  }

  stepName(step) {
    const layers = this.last + 1 >> 1;
    return step ? `Layer ${(step + 1) >> 1} of ${layers}, ${step % 2 ? "attention" : "MLP"}` : "Start";
  }
}

/** Every row, from the first one and the changes to each next: [places further, new, ...]. */
function unrolled(first, changes) {
  const rows = [Uint32Array.from(first)];
  for (const pairs of changes) {
    const row = rows[rows.length - 1].slice();
    for (let i = 0, place = 0; i < pairs.length; i += 2) {
      place += pairs[i];
      row[place] = pairs[i + 1];
    }
    rows.push(row);
  }
  return rows;
}

function firingsByPosition(pairs) {
  const found = new Map();
  for (let i = 0, position = 0; i < pairs.length; i += 2) {
    position += pairs[i];
    if (!found.has(position)) found.set(position, []);
    found.get(position).push(pairs[i + 1]);
  }
  return found;
}

/** An element with properties, and with children that are elements or texts. Texts stay texts. */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
