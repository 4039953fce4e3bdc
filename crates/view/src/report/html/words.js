
// Figures in the words of cgscope's other views.
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

// A round duration, as on an axis.
function short(ns) {
  return duration(ns).replace(/\.0+(?=[a-z])|(?<=\.\d*[1-9])0+(?=[a-z])/, "");
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
