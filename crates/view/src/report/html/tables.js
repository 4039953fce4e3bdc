
// Tables: a click on a heading sorts them, typing filters them.
const SHOWN = 20;

function scrolled(what, heads, body) {
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": what },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
}

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
    const left = table.left_out ? `${counted(table.left_out, "row")} with less time, ${duration(table.left_out_ns)} in all, left out of this page.` : "";
    parent.append(
      element("div", { class: "controls" }, element("label", {}, "Filter ", this.filter), this.count, this.more),
      scrolled(what, this.heads, this.body), element("p", { class: "left-out" }, left));
    this.show();
  }

  sort(n) {
    this.ascending = this.sorted === n ? !this.ascending : typeof this.columns[n].value(this.rows[0] || {}) === "string";
    this.sorted = n;
    this.show();
  }

  found() {
    const words = this.filter.value.toLowerCase().split(/\s+/);
    const found = this.rows.filter((row) => words.every((word) => this.text(row).includes(word)));
    const { value } = this.columns[this.sorted];
    const up = this.ascending ? 1 : -1;
    return found.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      // Unknown values come last in either order.
      if (x === null || y === null) return (x === null) - (y === null);
      return up * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
    });
  }

  text(row) {
    return [row.name, row.id, row.process, row.cgroup, row.path, row.victim, row.culprit, row.sleeper, row.waker, row.kind].join(" ").toLowerCase();
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
    return element("tr", {}, ...this.columns.map((column) =>
      element("td", { class: column.kind, "data-value": column.value(row) }, column.cell(row))));
  }
}

// A bar split by cause, of the length `width` in percent.
function bar(causes, parts, width = 100) {
  const all = sum(parts);
  const used = causes.map((cause, c) => [cause, parts[c]]).filter(([, part]) => part > 0);
  const said = used.map(([cause, part]) => cause.words + " " + share(part, all, 1)).join(", ");
  return element("span", { class: "bar", role: "img", title: said, "aria-label": said || "nothing" }, ...used.map(([cause, part]) => {
    const piece = element("span", { class: cause.name });
    piece.style.width = (width * part / all) + "%";
    return piece;
  }));
}

function groupColumns(data, first) {
  const figure = (title, key, words, says) => ({ title, value: (row) => row[key], cell: (row) => words(row[key]), says });
  const throttled = (row) => row.total_ns ? row.by_cause_ns[0] / row.total_ns : null;
  const waited = (row) => row.total_ns + row.on_cpu_ns ? row.total_ns / (row.total_ns + row.on_cpu_ns) : null;
  const part = (value) => value === null ? "-" : (100 * value).toFixed(0) + "%";
  return [
    first,
    figure("Waited", "total_ns", duration, "summed over tasks"),
    { title: "Share", value: waited, cell: (row) => part(waited(row)), says: "of the time in which it was runnable" },
    { title: "Why", kind: "why", value: throttled, cell: (row) => bar(data.causes, row.by_cause_ns), says: "sorted by the share of throttled" },
    { title: "Throttled", value: throttled, cell: (row) => part(throttled(row)), says: "of its waiting" },
    figure("Waits", "count", whole, "how many ended"),
    ...(data.exact ? [figure("p50", "p50_ns", duration, "half of the waits were at most this long"),
      figure("p99", "p99_ns", duration, "99% of the waits were at most this long"), figure("Longest", "max_ns", duration, "the longest wait")] : []),
    figure("On CPU", "on_cpu_ns", duration, "time on a CPU"),
    figure("Vol.", "voluntary", whole, "voluntary switches"),
    figure("Invol.", "involuntary", whole, "involuntary switches"),
  ];
}

function cgroupName(row) {
  return element("span", {}, row.name, row.path ? element("small", {}, " " + row.path) : null);
}

function taskName(row) {
  const of = row.process !== null && row.process !== row.id ? " of " + row.process : "";
  return element("span", {}, row.id === null ? null : element("span", { class: "id" }, row.id + " "), row.name + of,
    row.cgroup === null ? null : element("small", {}, " " + row.cgroup));
}

function lengthsTable({ causes, hist }, parent) {
  const most = Math.max(...hist.map((row) => row.count));
  const used = causes.filter((_, c) => hist.some((row) => row.by_cause[c] > 0));
  const lines = hist.map((row) => element("tr", {},
    element("td", {}, `${duration(row.low_ns)} to ${duration(row.high_ns)}`),
    element("td", { "data-value": row.count }, whole(row.count)),
    element("td", { class: "long" }, row.count ? bar(causes, row.by_cause, Math.max(100 * row.count / most, .4)) : "")));
  const heads = ["Length", "Waits", "Why"].map((title) => element("th", { scope: "col", class: title === "Why" ? "long" : null }, title));
  parent.append(swatches(used.map((cause) => [cause.name, cause.words])), scrolled("waits by length and cause", heads, element("tbody", {}, ...lines)));
}
