
// Figures as people read them: the same words as in cgscope's other views.
const SECOND = 1e9;

function three(value, unit) {
  const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return value.toFixed(digits) + unit;
}

function duration(ns) {
  if (ns === null || ns === undefined) return "-";
  if (ns < 1e3) return Math.round(ns) + "ns";
  if (ns < 1e6) return three(ns / 1e3, "us");
  if (ns < 1e9) return three(ns / 1e6, "ms");
  if (ns < 60e9) return three(ns / 1e9, "s");
  const s = Math.floor(ns / 1e9);
  return Math.floor(s / 60) + "m" + String(s % 60).padStart(2, "0") + "s";
}

function bytes(n) {
  if (n === null) return "-";
  let value = n;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return unit === "B" ? n + "B" : value.toFixed(1) + unit;
    value /= 1024;
  }
  return value.toFixed(1) + "TiB";
}

function whole(n) {
  return n === null || n === undefined ? "-" : n.toLocaleString("en").replaceAll(",", "\u202f");
}

function share(part, all, digits = 0) {
  return all ? (100 * part / all).toFixed(digits) + "%" : "-";
}

function counted(n, what) {
  return whole(n) + " " + what + (n === 1 ? "" : "s");
}

function sum(numbers) {
  return numbers.reduce((all, one) => all + one, 0);
}

function clock(ms) {
  return new Date(ms).toISOString().slice(11, 19) + " UTC";
}

// An element. Text stays text, whatever is in it.
function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
