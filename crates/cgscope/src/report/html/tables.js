
// Tables that are sorted by a click on a heading and filtered by typing.
const SHOWN = 20;

// `columns`: { title, value(row): what is sorted by, cell(row): text or an element, kind: a class, says: what it means }.
class Table {
  constructor(parent, table, columns, what) {
    this.rows = table.rows;
    this.columns = columns;
    this.sorted = 1;
    this.ascending = false;
    this.all = false;
    this.filter = element("input", { type: "search", placeholder: "name, id or path", autocomplete: "off", spellcheck: "false" });
    this.count = element("span", { class: "hint", role: "status" });
    this.heads = columns.map((column, n) => {
      const button = element("button", { type: "button", title: column.says }, column.title);
      button.addEventListener("click", () => this.sort(n));
      return element("th", { scope: "col", class: column.kind }, button);
    });
    this.body = element("tbody");
    this.more = element("button", { type: "button", class: "link" });
    this.more.addEventListener("click", () => { this.all = !this.all; this.show(); });
    this.filter.addEventListener("input", () => this.show());
    const left = table.left_out ? `${counted(table.left_out, "row")} with less waiting, ${duration(table.left_out_ns)} in all, left out of this page.` : "";
    parent.append(
      element("div", { class: "controls" }, element("label", {}, "Filter ", this.filter), this.count, this.more),
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": what },
        element("table", {}, element("thead", {}, element("tr", {}, ...this.heads)), this.body)),
      element("p", { class: "left-out" }, left));
    parent.hidden = false;
    this.made = new Map();
    this.show();
  }

  sort(n) {
    this.ascending = this.sorted === n ? !this.ascending : typeof this.columns[n].value(this.rows[0] || {}) === "string";
    this.sorted = n;
    this.show();
  }

  found() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter((word) => word);
    const found = this.rows.filter((row) => {
      const text = this.text(row);
      return words.every((word) => text.includes(word));
    });
    const { value } = this.columns[this.sorted];
    const up = this.ascending ? 1 : -1;
    return found.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      // What is not known comes last either way.
      if (x === null || y === null) return (x === null) - (y === null);
      return up * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
    });
  }

  text(row) {
    return [row.name, row.id, row.process, row.cgroup, row.whose, row.victim, row.culprit]
      .filter((part) => part !== null && part !== undefined).join(" ").toLowerCase();
  }

  show() {
    const found = this.found();
    this.heads.forEach((head, n) => {
      if (n === this.sorted) head.setAttribute("aria-sort", this.ascending ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...found.slice(0, this.all ? found.length : SHOWN).map((row) => this.line(row)));
    this.count.textContent = found.length === this.rows.length ? counted(found.length, "row") : `${whole(found.length)} of ${counted(this.rows.length, "row")}`;
    this.more.hidden = found.length <= SHOWN;
    this.more.textContent = this.all ? `Show ${SHOWN}` : `Show all ${whole(found.length)}`;
  }

  line(row) {
    if (!this.made.has(row)) {
      this.made.set(row, element("tr", {}, ...this.columns.map((column) =>
        element("td", { class: column.kind, "data-value": column.value(row) }, column.cell(row)))));
    }
    return this.made.get(row);
  }
}

// A bar split by cause, of the length `width` in percent.
function bar(data, parts, width = 100) {
  const all = sum(parts);
  const made = element("span", { class: "bar", role: "img" });
  const said = [];
  parts.forEach((part, c) => {
    if (!(part > 0)) return;
    const piece = element("span", { class: data.causes[c].name });
    piece.style.width = (width * part / all) + "%";
    made.append(piece);
    said.push(data.causes[c].words + " " + share(part, all, 1));
  });
  made.title = said.join(", ");
  made.setAttribute("aria-label", made.title || "nothing");
  return made;
}

function groupColumns(data, first) {
  const figure = (title, key, words, says) => ({ title, value: (row) => row[key], cell: (row) => words(row[key]), says });
  const throttled = (row) => row.total_ns ? row.by_cause_ns[0] / row.total_ns : null;
  const waited = (row) => row.total_ns + row.on_cpu_ns ? row.total_ns / (row.total_ns + row.on_cpu_ns) : null;
  const part = (value) => value === null ? "-" : (100 * value).toFixed(0) + "%";
  return [
    first,
    figure("Waited", "total_ns", duration, "summed over tasks"),
    { title: "Share", value: waited, cell: (row) => part(waited(row)), says: "of the time in which it could have run" },
    { title: "Why", kind: "why", value: throttled, cell: (row) => bar(data, row.by_cause_ns), says: "sorted by the share of throttled" },
    { title: "Throttled", value: throttled, cell: (row) => part(throttled(row)), says: "of its waiting" },
    figure("Waits", "count", whole, "how many ended"),
    ...(data.exact ? [figure("p50", "p50_ns", duration, "half of the waits were no longer"),
      figure("p99", "p99_ns", duration, "99 of 100 waits were no longer"), figure("Longest", "max_ns", duration, "the longest wait")] : []),
    figure("On CPU", "on_cpu_ns", duration, "time on a CPU"),
    figure("Vol.", "voluntary", whole, "voluntary switches"),
    figure("Invol.", "involuntary", whole, "involuntary switches"),
  ];
}

function cgroupName(row) {
  return element("span", {}, row.name, row.whose ? element("small", {}, " " + row.whose) : null);
}

function taskName(row) {
  const of = row.process !== null && row.process !== row.id ? " of " + row.process : "";
  return element("span", {}, row.id === null ? null : element("span", { class: "id" }, row.id + " "), row.name + of,
    row.cgroup === null ? null : element("small", {}, " " + row.cgroup));
}

function lengthsTable(data, parent) {
  const body = element("tbody");
  const choice = element("div", { class: "choice", role: "group", "aria-label": "What bars show" });
  const views = [["waits", "Number of waits", (row) => row.count, whole], ["time", "Time in them, about", (row) => row.about_ns, duration]];
  const head = element("th", { scope: "col" });
  const show = ([, title, value, words], pressed) => {
    for (const button of choice.children) button.setAttribute("aria-pressed", button === pressed);
    head.textContent = title;
    const most = Math.max(...data.hist.map(value), 1);
    body.replaceChildren(...data.hist.map((row) => element("tr", {},
      element("td", {}, `${duration(row.low_ns)} to ${duration(row.high_ns)}`),
      element("td", { "data-value": value(row) }, words(value(row))),
      element("td", { class: "long" }, row.count ? bar(data, row.by_cause, Math.max(100 * value(row) / most, .4)) : ""))));
  };
  for (const view of views) {
    const button = element("button", { type: "button", "data-view": view[0] }, view[1]);
    button.addEventListener("click", () => show(view, button));
    choice.append(button);
  }
  const used = data.causes.map((_, c) => c).filter((c) => data.hist.some((row) => row.by_cause[c] > 0));
  parent.append(
    element("div", { class: "controls" }, choice, swatches(used.map((c) => [data.causes[c].name, data.causes[c].words]))),
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "waits by length and cause" },
      element("table", {}, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Length"), head, element("th", { scope: "col", class: "long" }, "Why"))), body)));
  parent.hidden = false;
  show(views[0], choice.firstChild);
}

function nodesTable(data, parent) {
  const or = (value, words) => value === null ? "-" : words(value);
  const rows = [
    ["CPUs", (node) => node.cpus || "none"],
    ["Busy", (node) => or(node.busy_percent, (one) => one.toFixed(1) + "%")],
    ["Running or waiting", (node) => or(node.runnable_avg, (one) => one.toFixed(2))],
    ["These tasks ran", (node) => duration(node.ran_ns)], ["Waited", (node) => duration(node.total_ns)],
    ["Waits", (node) => whole(node.count)], ["p99", (node) => duration(node.p99_ns)],
    ["Came from others", (node) => whole(node.migrations_in)], ["Left for others", (node) => whole(node.migrations_out)],
    ["Memory in use", (node) => bytes(node.used_bytes)], ["Memory", (node) => bytes(node.memory_bytes)],
  ];
  const heads = data.nodes.map((node) => element("th", { scope: "col" }, "Node " + node.node));
  const lines = rows.map(([title, cell]) =>
    element("tr", {}, element("th", { scope: "row" }, title), ...data.nodes.map((node) => element("td", {}, cell(node)))));
  parent.append(element("div", { class: "scroll nodes", tabindex: 0, role: "region", "aria-label": "NUMA nodes" }, element("table", {},
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }), ...heads)), element("tbody", {}, ...lines))));
  parent.hidden = false;
}
