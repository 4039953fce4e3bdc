
// Charts over time. They share the axis, and the moment that is looked at.
const MARGIN = { left: 58, right: 10, top: 8, bottom: 22 };

class Time {
  constructor(data) {
    this.at = data.over.at_us;
    this.length = data.over.length_us;
    this.end = data.duration_ns / 1e3;
    this.start_ms = data.start_unix_ms;
    this.worst = data.over.worst;
    this.charts = [];
    this.moment = null;
  }

  // The slice at a time in us.
  slice(us) {
    let low = 0;
    let high = this.at.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.at[middle] <= us) low = middle; else high = middle - 1;
    }
    return low;
  }

  look(moment) {
    this.moment = moment;
    for (const chart of this.charts) chart.show();
  }

  words(i) {
    const from = this.at[i] * 1e3;
    const to = from + this.length[i] * 1e3;
    return duration(from) + " to " + duration(to) + " (" + clock(this.start_ms + from / 1e6) + ")";
  }

  redraw() {
    for (const chart of this.charts) chart.draw();
  }
}

// Round numbers from 0 to the top.
function ticks(top, wanted) {
  if (!(top > 0)) return [0];
  const rough = top / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((n) => n * power >= rough) * power;
  const found = [];
  for (let i = 0; i * step <= top * 1.0001; i++) found.push(i * step);
  return found;
}

// Round lengths of time, us, from 0 to the end.
function times(end, wanted) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms * 1e3)
    .concat([1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400].map((s) => s * 1e6));
  const step = steps.find((one) => end / one <= wanted) || end;
  const found = [];
  for (let i = 0; i * step <= end; i++) found.push(i * step);
  return found;
}

function elapsed(us) {
  const s = us / 1e6;
  if (s < 60) return Number(s.toFixed(3)) + "s";
  const h = Math.floor(s / 3600);
  const m = Math.floor(s / 60) % 60;
  const rest = Math.round(s % 60);
  return (h ? h + "h" : "") + (h ? String(m).padStart(2, "0") : m) + "m" + (rest ? String(rest).padStart(2, "0") + "s" : "");
}

// A chart over time. `view.draw(frame)` gives its marks, `view.says(i, row)` what there is at a moment.
class Chart {
  constructor(time, parent, view) {
    this.time = time;
    this.view = view;
    this.row = null;
    this.title = element("h3", {}, view.title);
    this.sub = element("span", { class: "sub" }, view.sub || "");
    this.svg = drawn("svg", { role: "img", "aria-label": view.title + (view.sub ? ", " + view.sub : "") });
    this.plot = element("div", { class: "plot", tabindex: 0, role: "group", "aria-label": view.title + ": arrow keys go through time" }, this.svg);
    this.readout = element("p", { class: "readout", role: "status" });
    this.figure = element("figure", { id: view.id },
      element("figcaption", {}, this.title, this.sub, view.legend || null), this.plot, this.readout);
    parent.append(this.figure);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerdown", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.leave(); });
    this.plot.addEventListener("keydown", (event) => this.key(event));
    time.charts.push(this);
  }

  draw() {
    const width = Math.max(this.plot.clientWidth, 240);
    const height = this.view.height;
    const frame = {
      left: MARGIN.left, top: MARGIN.top, width: width - MARGIN.left - MARGIN.right,
      height: height - MARGIN.top - MARGIN.bottom,
    };
    frame.bottom = frame.top + frame.height;
    frame.x = (us) => frame.left + us / this.time.end * frame.width;
    this.frame = frame;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.mark = drawn("g");
    this.svg.replaceChildren(...this.view.draw(frame), ...this.axis(frame), this.mark);
    this.show();
  }

  axis(frame) {
    const marks = [drawn("line", { class: "axis", x1: frame.left, x2: frame.left + frame.width, y1: frame.bottom, y2: frame.bottom })];
    for (const us of times(this.time.end, Math.max(2, frame.width / 85))) {
      const x = frame.x(us);
      marks.push(drawn("line", { class: "axis", x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 4 }));
      const anchor = us === 0 ? "start" : x > frame.left + frame.width - 16 ? "end" : "middle";
      marks.push(drawn("text", { x, y: frame.bottom + 16, "text-anchor": anchor }, elapsed(us)));
    }
    if (this.time.worst !== null) {
      const x = frame.x(this.time.at[this.time.worst] + this.time.length[this.time.worst] / 2);
      const worst = drawn("path", { class: "worst", d: `M${x - 4} ${frame.top - 7}h8l-4 6z` });
      worst.append(drawn("title", {}, "when most was waited"));
      marks.push(worst);
    }
    return marks;
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const scale = this.svg.viewBox.baseVal.width / box.width;
    const us = ((event.clientX - box.left) * scale - this.frame.left) / this.frame.width * this.time.end;
    this.row = this.view.row ? this.view.row((event.clientY - box.top) * scale, this.frame) : null;
    this.time.look(this.time.slice(us));
  }

  leave() {
    this.row = null;
    this.time.look(null);
  }

  key(event) {
    const last = this.time.at.length - 1;
    const now = this.time.moment;
    const near = now === null ? (this.time.worst || 0) : now;
    const moves = {
      ArrowLeft: now === null ? near : near - 1, ArrowRight: now === null ? near : near + 1,
      PageUp: near - 10, PageDown: near + 10, Home: 0, End: last,
    };
    if (event.key in moves) {
      this.time.look(Math.min(last, Math.max(0, moves[event.key])));
    } else if (this.view.rows && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      const step = event.key === "ArrowUp" ? 1 : -1;
      this.row = Math.min(this.view.rows - 1, Math.max(0, this.row === null ? 0 : this.row + step));
      this.time.look(near);
    } else if (event.key === "Escape") {
      this.leave();
    } else {
      return;
    }
    event.preventDefault();
  }

  show() {
    const i = this.time.moment;
    this.readout.replaceChildren();
    this.mark.replaceChildren();
    if (i === null) {
      this.readout.append(this.view.rest || "");
      return;
    }
    const x = this.frame.x(this.time.at[i]);
    const width = Math.max(this.frame.x(this.time.at[i] + this.time.length[i]) - x, 1);
    this.mark.append(drawn("rect", { class: "cursor", x, y: this.frame.top, width, height: this.frame.height }));
    if (this.row !== null) this.mark.append(this.view.cell(this.frame, x, width, this.row));
    this.readout.append(element("b", {}, this.time.words(i)), ": " + this.view.says(i, this.row));
  }
}

// Lines and labels of a linear scale.
function scale(frame, top, wanted, label) {
  const marks = [];
  for (const value of ticks(top, wanted)) {
    const y = frame.bottom - value / top * frame.height;
    marks.push(drawn("line", { class: "grid", x1: frame.left, x2: frame.left + frame.width, y1: y, y2: y }));
    marks.push(drawn("text", { x: frame.left - 6, y: y + 4, "text-anchor": "end" }, label(value)));
  }
  return marks;
}

// The outline of steps: `values[i]` over slice i. Broken where there is none.
function steps(time, frame, values, y) {
  let path = "";
  let open = false;
  values.forEach((value, i) => {
    if (value === null) {
      open = false;
      return;
    }
    const at = y(value).toFixed(1);
    path += (open ? "L" : "M") + frame.x(time.at[i]).toFixed(1) + " " + at + "H" + frame.x(time.at[i] + time.length[i]).toFixed(1);
    open = true;
  });
  return path;
}

// Steps from one series up to another.
function area(time, frame, lower, upper, y) {
  let there = "";
  let back = "";
  upper.forEach((value, i) => {
    const [from, to] = [frame.x(time.at[i]).toFixed(1), frame.x(time.at[i] + time.length[i]).toFixed(1)];
    there += (i ? "L" : "M") + from + " " + y(value).toFixed(1) + "H" + to;
    back = "L" + to + " " + y(lower[i]).toFixed(1) + "H" + from + back;
  });
  return there + back + "Z";
}

function swatches(entries) {
  return element("ul", { class: "legend" }, ...entries.map(([kind, words]) =>
    element("li", {}, element("span", { class: "swatch " + kind }), words)));
}

// The causes of waits over time, stacked: of all tasks, or of a cgroup.
function causesView(data, time) {
  const view = { id: "causes", height: 220, title: "Tasks waiting, by cause", sub: "on average at a time" };
  view.choose = (whose) => {
    const path = whose === null ? null : data.paths[whose];
    const us = path ? path.by_cause_us : data.over.by_cause_ns.map((series) => series.map((ns) => ns / 1e3));
    view.averages = us.map((series) => series.map((one, i) => one / time.length[i]));
    view.sums = view.averages[0].map((_, i) => sum(view.averages.map((series) => series[i])));
    view.used = data.causes.map((_, c) => c).filter((c) => us[c].some((one) => one !== 0));
  };
  view.choose(null);
  view.legend = swatches(view.used.map((c) => [data.causes[c].name, data.causes[c].letter + " " + data.causes[c].words]));
  view.draw = (frame) => {
    const top = Math.max(...view.sums) * 1.05 || 1;
    const y = (value) => frame.bottom - value / top * frame.height;
    const marks = scale(frame, top, 4, (value) => Number(value.toPrecision(3)));
    let lower = view.sums.map(() => 0);
    for (const c of view.used) {
      const upper = lower.map((value, i) => value + view.averages[c][i]);
      marks.push(drawn("path", { class: data.causes[c].name, d: area(time, frame, lower, upper, y) }));
      lower = upper;
    }
    return marks;
  };
  view.says = (i) => {
    const parts = view.used.filter((c) => view.averages[c][i] > 0).sort((a, b) => view.averages[b][i] - view.averages[a][i]);
    const said = parts.map((c) => data.causes[c].words + " " + share(view.averages[c][i], view.sums[i]));
    return view.sums[i].toFixed(2) + " tasks waiting" + (said.length ? "; " + said.join(", ") : "");
  };
  return view;
}

// Waits by length over time.
// A count as a step of the ramp of colours, on a logarithmic scale.
const LEVELS = 10;

function heatLevels(heat) {
  let most = 1;
  for (const cells of heat) for (let k = 1; k < cells.length; k += 2) most = Math.max(most, cells[k]);
  const level = (count) => most === 1 ? LEVELS : 1 + Math.round(Math.log(count) / Math.log(most) * (LEVELS - 1));
  const ramp = element("span", { class: "ramp", "aria-hidden": "true" });
  for (let n = 1; n <= LEVELS; n++) ramp.append(element("span", { class: "h" + n }));
  const legend = swatches([["stroke p99", "p99"], ["stroke p50", "p50"]]);
  legend.prepend(element("li", {}, "1", ramp, counted(most, "wait")));
  return { level, legend };
}

// Where a length lies, in rows from the bottom.
function heatPlace(rows, ns) {
  const row = rows.findIndex(([low, high]) => ns >= low && ns < high);
  if (row < 0) return ns < rows[0][0] ? 0 : rows.length;
  // Below a microsecond rows are linear, above there are two to each doubling.
  const [low, high] = rows[row];
  return row + (low > 0 ? Math.log(ns / low) / Math.log(high / low) : ns / high);
}

function heatCells(heat, time, frame, high, level) {
  const paths = Array.from({ length: LEVELS + 1 }, () => "");
  heat.forEach((cells, i) => {
    // Edges on whole pixels: neighbours share them, without a gap.
    const x = Math.round(frame.x(time.at[i]));
    const width = Math.max(Math.round(frame.x(time.at[i] + time.length[i])) - x, 1);
    for (let k = 0; k < cells.length; k += 2) {
      const top = Math.round(frame.bottom - (cells[k] + 1) * high);
      paths[level(cells[k + 1])] += `M${x} ${top}h${width}V${Math.round(frame.bottom - cells[k] * high)}h-${width}z`;
    }
  });
  return drawn("g", { class: "cells" }, ...paths.map((d, n) => d ? drawn("path", { class: "h" + n, d }) : null));
}

// Powers of ten.
function heatGrid(rows, frame, y) {
  const marks = [];
  for (let ns = 1e3; ns <= rows.at(-1)[1]; ns *= 10) {
    if (ns < rows[0][0]) continue;
    marks.push(drawn("line", { class: "grid", x1: frame.left, x2: frame.left + frame.width, y1: y(ns), y2: y(ns) }));
    marks.push(drawn("text", { x: frame.left - 6, y: y(ns) + 4, "text-anchor": "end" }, duration(ns).replace(/\.0+(?=[a-z])/, "")));
  }
  return marks;
}

function heatSays(over, i, row) {
  const { heat, heat_rows_ns: rows, waits, p50_ns, p99_ns, max_ns, pending, pending_max_ns } = over;
  let said = counted(waits[i], "wait");
  if (waits[i]) said += `; p50 ${duration(p50_ns[i])}, p99 ${duration(p99_ns[i])}, longest ${duration(max_ns[i])}`;
  if (pending[i]) said += `; ${counted(pending[i], "task")} waiting at a Sample, the longest for ${duration(pending_max_ns[i])} so far`;
  if (row === null) return said;
  const cells = heat[i];
  let count = 0;
  for (let k = 0; k < cells.length; k += 2) if (cells[k] === row) count = cells[k + 1];
  return `${whole(count)} of ${duration(rows[row][0])} to ${duration(rows[row][1])}, of ${said}`;
}

function heatView(data, time) {
  const { heat, heat_rows_ns: rows, p50_ns, p99_ns } = data.over;
  const { level, legend } = heatLevels(heat);
  const heightOf = (frame) => frame.height / rows.length;
  return {
    id: "heat", height: Math.min(320, Math.max(140, rows.length * 9)), title: "Waits by length", rows: rows.length, legend,
    draw: (frame) => {
      const y = (ns) => frame.bottom - heatPlace(rows, ns) * heightOf(frame);
      return [
        ...heatGrid(rows, frame, y),
        heatCells(heat, time, frame, heightOf(frame), level),
        drawn("path", { class: "series p50", d: steps(time, frame, p50_ns, y) }),
        drawn("path", { class: "series p99", d: steps(time, frame, p99_ns, y) }),
      ];
    },
    row: (y, frame) => {
      const row = Math.floor((frame.bottom - y) / frame.height * rows.length);
      return row >= 0 && row < rows.length ? row : null;
    },
    cell: (frame, x, width, row) => {
      const high = heightOf(frame);
      return drawn("rect", { class: "cell", x: x - 1, width: width + 2, y: frame.bottom - (row + 1) * high, height: high });
    },
    says: (i, row) => heatSays(data.over, i, row),
  };
}

// What ran.
function runningView(data, time) {
  const { on_cpu_us, busy_us } = data.over;
  const view = { id: "running", height: 120, title: "CPUs in use", sub: data.cpus ? "of " + data.cpus : "" };
  const busy = busy_us.map((us, i) => us === null ? null : us / time.length[i]);
  view.choose = (whose) => {
    const us = whose === null ? on_cpu_us : data.paths[whose].on_cpu_us;
    view.ran = us.map((one, i) => one / time.length[i]);
  };
  view.choose(null);
  const known = busy.some((one) => one !== null);
  view.legend = swatches([["ran", "these tasks"]].concat(known ? [["stroke busy", "all of the host"]] : []));
  view.draw = (frame) => {
    const top = Math.max(data.cpus || 0, ...view.ran, ...busy.map((one) => one || 0)) * 1.03 || 1;
    const y = (value) => frame.bottom - value / top * frame.height;
    return scale(frame, top, 2, (value) => Number(value.toPrecision(3))).concat(
      drawn("path", { class: "ran", d: area(time, frame, view.ran.map(() => 0), view.ran, y) }),
      drawn("path", { class: "series busy", d: steps(time, frame, busy, y) }));
  };
  view.says = (i) => view.ran[i].toFixed(2) + " CPUs used" + (busy[i] === null ? "" : ", " + busy[i].toFixed(2) + " by all of the host");
  return view;
}

// What a quota allowed, what was used of it, and how often it ran out.
function quotaView(quota, time, number) {
  const { allowed_us, used_us, periods, throttled, throttled_us } = quota;
  const used = used_us.map((us, i) => us === null || !allowed_us[i] ? null : 100 * us / allowed_us[i]);
  const out = throttled.map((n, i) => n === null || !periods[i] ? null : 100 * n / periods[i]);
  return {
    id: "quota-" + number, height: 120, title: quota.path, sub: quota.words,
    legend: swatches([["ran", quota.used_is_read ? "used of the quota" : "these tasks used of the quota"], ["stroke out", "periods that ran out"]]),
    draw: (frame) => {
      const top = Math.max(100, ...used.map((one) => one || 0)) * 1.05;
      const y = (value) => frame.bottom - value / top * frame.height;
      const filled = used.map((one) => one || 0);
      return scale(frame, top, 2, (value) => value + "%").concat(
        drawn("path", { class: "ran", d: area(time, frame, filled.map(() => 0), filled, y) }),
        drawn("line", { class: "full", x1: frame.left, x2: frame.left + frame.width, y1: y(100), y2: y(100) }),
        drawn("path", { class: "series out", d: steps(time, frame, out, y) }));
    },
    says: (i) => {
      if (allowed_us[i] === null) return "no quota then";
      const said = [used_us[i] === null ? "use not read" : `used ${duration(used_us[i] * 1e3)} of ${duration(allowed_us[i] * 1e3)} (${used[i].toFixed(0)}%)`];
      if (periods[i] !== null && throttled[i] !== null) said.push(`ran out in ${whole(throttled[i])} of ${counted(periods[i], "period")}`);
      if (throttled_us[i] !== null) said.push(`stood ${duration(throttled_us[i] * 1e3)}, each CPU by itself`);
      return said.join("; ");
    },
  };
}
