"use strict";

/* The page: where in the run it is, and everything that moves it. */

const trace = new Trace(JSON.parse(document.getElementById("data").textContent));
const table = new Table(trace, (variable, position) => choose(variable, position, true));
const detail = new Detail(trace, go, (variable, position) => choose(variable, position, true));
const $ = (id) => document.getElementById(id);

const now = { step: 0, variable: trace.data.output, position: Math.max(0, trace.positions - 1), timer: null };

const PLAY = "M4 2.5v11l9-5.5z";
const PAUSE = "M3.5 3h3v10h-3zM9.5 3h3v10h-3z";

function go(step) {
  now.step = Math.max(0, Math.min(trace.last, step));
  render();
}

function choose(variable, position, focus = false) {
  now.variable = variable;
  now.position = position;
  if (table.rows[variable]?.hidden) showAll();
  render();
  if (focus) table.focus(variable, position);
}

function render() {
  const { step, variable, position } = now;
  const aside = document.querySelector("aside");
  const within = aside.contains(document.activeElement);
  table.render(step);
  const { marks, arcs, label } = detail.render(step, variable, position);
  if ($("filter").value === "step") filter();
  table.mark(variable, position, marks, arcs, label);
  $("step").textContent = trace.stepName(step);
  $("slider").value = step;
  $("slider").setAttribute("aria-valuetext", trace.stepName(step));
  for (const id of ["first", "back"]) $(id).disabled = step === 0;
  for (const id of ["forward", "last"]) $(id).disabled = step === trace.last;
  if (within && !aside.contains(document.activeElement)) table.focus(variable, position); // its button is gone
  drawTicks();
  $("link").href = address();
  if (now.timer === null) {
    announce();
    remember();
  }
}

function announce() {
  const { step } = now;
  const changes = trace.variables.reduce((sum, _, variable) => sum + trace.changes(step, variable), 0);
  $("live").textContent = `${trace.stepName(step)}. ${changes} value${changes === 1 ? "" : "s"} changed.`;
}

/* The address of a state, so that it can be linked to. */

function address() {
  const { step, variable, position } = now;
  const name = trace.variables[variable].name;
  return `#${new URLSearchParams(trace.positions ? { step, variable: name, position } : { step })}`;
}

let remembering = null;

function remember() {
  if (location.protocol === "about:") return; // a notebook's frame has no address of its own
  clearTimeout(remembering);
  remembering = setTimeout(() => history.replaceState(null, "", address()), 200); // browsers limit how often
}

function recall() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const number = (name, most) => (/^\d+$/.test(wanted.get(name)) && Number(wanted.get(name)) <= most ? Number(wanted.get(name)) : null);
  const variable = trace.variables.findIndex(({ name }) => name === wanted.get("variable"));
  now.step = number("step", trace.last) ?? now.step;
  if (variable >= 0) now.variable = variable;
  now.position = number("position", trace.positions - 1) ?? now.position;
}

/* Playing. */

function play(on) {
  clearInterval(now.timer);
  now.timer = on ? setInterval(() => (now.step === trace.last ? play(false) : go(now.step + 1)), Number($("speed").value)) : null;
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  $("play-icon").setAttribute("d", on ? PAUSE : PLAY);
  if (on && now.step === trace.last) go(0);
  if (!on) render();
}

/* Which variables are shown. */

function filter() {
  const text = $("search").value.trim().toLowerCase();
  const which = $("filter").value;
  const shown = table.filter((variable) => {
    if (!trace.variables[variable].name.toLowerCase().includes(text)) return false;
    if (which === "run") return trace.everChanges(variable);
    return which === "all" || trace.changes(now.step, variable) > 0;
  });
  const all = trace.variables.length;
  $("count").textContent = shown === all ? `${all} variables` : `${shown} of ${all} variables`;
}

function showAll() {
  $("search").value = "";
  $("filter").value = "all";
  filter();
}

/* The line above the slider: how many rules fire in each layer, and where the chosen cell changes. */

function drawActivity() {
  const counts = Array.from({ length: trace.last + 1 }, (_, step) => [...trace.fired(step).values()].flat().length);
  const most = Math.max(1, ...counts);
  const drawing = $("activity");
  drawing.setAttribute("viewBox", `0 0 ${Math.max(1, trace.last)} 30`);
  drawing.style.strokeWidth = `${Math.max(1, Math.min(6, 900 / trace.last))}px`;
  const bar = (count, step) => (count ? `M${step} 23V${23 - 21 * count / most}` : "");
  drawing.querySelector(".bars").setAttribute("d", counts.map(bar).join(""));
}

function drawTicks() {
  const { variable, position } = now;
  const every = trace.isOutput(variable) ? 2 : 1;
  let ticks = "";
  for (let step = 1; trace.positions && step <= trace.last; step++) {
    const before = Math.max(0, step - every);
    const differs = trace.value(step, variable, position) !== trace.value(before, variable, position);
    if (differs && (every === 1 || step % 2)) ticks += `M${step} 25v5`;
  }
  $("activity").querySelector(".ticks").setAttribute("d", ticks);
}

/* Keys. */

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { tagName, type } = event.target;
  const typing = type === "search" || tagName === "SELECT";
  if (event.key === "Escape" && type === "search") event.target.blur();
  if (typing) return;
  const inTable = tagName === "TD";
  const slides = type === "range";
  const actions = {
    j: () => go(now.step + 1),
    k: () => go(now.step - 1),
    "/": () => $("search").focus(),
    ...(tagName === "BUTTON" || tagName === "SUMMARY" || type === "checkbox" || tagName === "A" ? {} : { " ": () => play(now.timer === null) }),
    ...(inTable ? moves() : slides ? {} : {
      ArrowRight: () => go(now.step + 1),
      ArrowLeft: () => go(now.step - 1),
      Home: () => go(0),
      End: () => go(trace.last),
    }),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function moves() {
  const rows = table.visible();
  const row = rows.indexOf(now.variable);
  const to = (down, position) => {
    const variable = rows[Math.max(0, Math.min(rows.length - 1, row + down))];
    choose(variable, Math.max(0, Math.min(trace.positions - 1, position)), true);
  };
  return {
    ArrowRight: () => to(0, now.position + 1),
    ArrowLeft: () => to(0, now.position - 1),
    ArrowDown: () => to(1, now.position),
    ArrowUp: () => to(-1, now.position),
    Home: () => to(0, 0),
    End: () => to(0, trace.positions - 1),
  };
}

/* What stays as it is. */

function introduce() {
  const { title, caption, halted, stopped, outputs, model } = trace.data;
  document.title = title;
  $("title").textContent = title;
  $("caption").textContent = caption || `${trace.inputs.join(" ")} → ${outputs.join(" ")}`;
  const layers = (trace.last + 1) >> 1;
  const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const facts = [
    counted(trace.positions, "position"),
    counted(trace.variables.length, "variable"),
    counted(layers, "layer") + (halted ? ", halted" : ""),
    model.reason ? "no Transformer" : `the Transformer agrees: ${counted(model.dims, "dim")}, ${model.format}`,
  ];
  $("facts").replaceChildren(...facts.map((fact) => element("span", {}, fact)));
  if (!stopped) return;
  $("stopped").textContent = `The run stopped: ${stopped.message}`;
  $("stopped").hidden = false;
  const variable = trace.variables.findIndex(({ name }) => name === stopped.variable);
  now.step = trace.last;
  now.position = stopped.position ?? now.position;
  if (variable >= 0) now.variable = variable;
}

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

introduce();
recall();
$("slider").max = trace.last;
$("first").addEventListener("click", () => go(0));
$("back").addEventListener("click", () => go(now.step - 1));
$("forward").addEventListener("click", () => go(now.step + 1));
$("last").addEventListener("click", () => go(trace.last));
$("play").addEventListener("click", () => play(now.timer === null));
$("speed").addEventListener("change", () => now.timer !== null && play(true));
$("slider").addEventListener("input", () => go(Number($("slider").value)));
$("theme").addEventListener("click", () => (document.documentElement.dataset.theme = isDark() ? "light" : "dark"));
$("search").addEventListener("input", filter);
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && table.visible().length) choose(table.visible()[0], now.position, true);
});
$("filter").addEventListener("change", filter);
$("vectors").addEventListener("change", () => {
  table.vectors = $("vectors").checked;
  document.body.classList.toggle("with-vectors", table.vectors);
  render();
});
addEventListener("hashchange", () => {
  recall();
  render();
  table.reveal(now.variable, now.position);
});
addEventListener("resize", () => ((table.middles = null), render()));
addEventListener("keydown", onKey);
$("vectors").closest("label").hidden = Boolean(trace.data.model.reason);
filter();
drawActivity();
render();
if (location.hash || trace.data.stopped) table.reveal(now.variable, now.position);
performance.mark("alta-ready");
