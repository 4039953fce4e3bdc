
// Charts over time. They share the axis and the moment under the pointer.
const MARGIN = { left: 58, right: 10, top: 8, bottom: 22 };

class Time {
  constructor(data) {
    this.at = data.over.at_us;
    this.length = data.over.length_us;
    this.end = data.duration_ns / 1e3;
    this.start_ms = data.start_unix_ms;
    this.charts = [];
    this.moment = null;
  }

  // The slice at a time in us.
  slice(us) {
    return Math.max(0, this.at.findLastIndex((at) => at <= us));
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

// Multiples of a step from 0 to the top.
function multiples(step, top) {
  return Array.from({ length: Math.floor(top / step * 1.0001) + 1 }, (_, i) => i * step);
}

// Round numbers, at most as many as wanted.
function ticks(top, wanted) {
  const power = 10 ** Math.floor(Math.log10(top / wanted));
  return multiples([1, 2, 2.5, 5, 10].find((n) => n * power >= top / wanted) * power, top);
}

// Round lengths of time, us: decimal up to ten seconds, above it parts of minutes and hours.
function times(end, wanted) {
  const seconds = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const steps = [1e3, 1e4, 1e5, 1e6].flatMap((us) => [us, 2 * us, 5 * us]).concat(seconds.map((s) => s * 1e6));
  return multiples(steps.find((one) => end / one <= wanted) || end, end);
}

// A chart over time. `view.draw(frame)` returns its marks, `view.says(i)` the figures at a moment.
class Chart {
  constructor(time, parent, view) {
    this.time = time;
    this.view = view;
    this.svg = drawn("svg", { role: "img", "aria-label": view.title + (view.sub ? ", " + view.sub : "") });
    this.plot = element("div", { class: "plot", tabindex: 0, role: "group", "aria-label": view.title + ": arrow keys go through time" }, this.svg);
    this.readout = element("p", { class: "readout", role: "status" });
    parent.append(element("figure", { id: view.id },
      element("figcaption", {}, element("h3", {}, view.title), element("span", { class: "sub" }, view.sub || ""), view.legend), this.plot, this.readout));
    for (const name of ["pointermove", "pointerdown"]) this.plot.addEventListener(name, (event) => this.point(event));
    this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") time.look(null); });
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
      marks.push(drawn("text", { x, y: frame.bottom + 16, "text-anchor": anchor }, us ? short(us * 1e3) : "0s"));
    }
    return marks;
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * this.svg.viewBox.baseVal.width / box.width;
    this.time.look(this.time.slice((x - this.frame.left) / this.frame.width * this.time.end));
  }

  key(event) {
    const now = this.time.moment;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) this.time.look(now === null ? 0 : Math.min(this.time.at.length - 1, Math.max(0, now + step)));
    else if (event.key === "Escape") this.time.look(null);
    else return;
    event.preventDefault();
  }

  show() {
    const i = this.time.moment;
    this.readout.replaceChildren();
    this.mark.replaceChildren();
    if (i === null) return;
    const x = this.frame.x(this.time.at[i]);
    const width = Math.max(this.frame.x(this.time.at[i] + this.time.length[i]) - x, 1);
    this.mark.append(drawn("rect", { class: "cursor", x, y: this.frame.top, width, height: this.frame.height }));
    this.readout.append(element("b", {}, this.time.words(i)), ": " + this.view.says(i));
  }
}

// A line across the chart with its label.
function gridLine(frame, y, label) {
  return [drawn("line", { class: "grid", x1: frame.left, x2: frame.left + frame.width, y1: y, y2: y }),
    drawn("text", { x: frame.left - 6, y: y + 4, "text-anchor": "end" }, label)];
}

// A linear scale: the place of a value, and lines with labels.
function scale(frame, top, wanted, label) {
  const y = (value) => frame.bottom - value / top * frame.height;
  return [y, ticks(top, wanted).flatMap((value) => gridLine(frame, y(value), label(value)))];
}

// The outline of steps: `values[i]` over slice i. It is broken where a value is unknown.
function steps(time, frame, values, y) {
  let path = "";
  values.forEach((value, i) => {
    if (value === null) return;
    const from = i && values[i - 1] !== null ? "L" : "M";
    path += from + frame.x(time.at[i]).toFixed(1) + " " + y(value).toFixed(1) + "H" + frame.x(time.at[i] + time.length[i]).toFixed(1);
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

// The causes of waits over time, one above the other.
function causesView({ causes, over }, time) {
  const averages = over.by_cause_ns.map((series) => series.map((ns, i) => ns / 1e3 / time.length[i]));
  const sums = averages[0].map((_, i) => sum(averages.map((series) => series[i])));
  const used = causes.map((_, c) => c).filter((c) => averages[c].some((one) => one !== 0));
  return {
    id: "causes", height: 220, title: "Tasks waiting, by cause", sub: "on average at a time",
    legend: swatches(used.map((c) => [causes[c].name, causes[c].letter + " " + causes[c].words])),
    draw: (frame) => {
      const [y, marks] = scale(frame, Math.max(...sums) * 1.05 || 1, 4, (value) => Number(value.toPrecision(3)));
      let lower = sums.map(() => 0);
      for (const c of used) {
        const upper = lower.map((value, i) => value + averages[c][i]);
        marks.push(drawn("path", { class: causes[c].name, d: area(time, frame, lower, upper, y) }));
        lower = upper;
      }
      return marks;
    },
    says: (i) => {
      const parts = used.filter((c) => averages[c][i] > 0).sort((a, b) => averages[b][i] - averages[a][i]);
      return [sums[i].toFixed(2) + " tasks waiting"].concat(parts.map((c) => causes[c].words + " " + share(averages[c][i], sums[i]))).join(", ");
    },
  };
}

// Steps of opacity in the heatmap: counts on a logarithmic scale.
const LEVELS = 10;

// Where a length lies in the heatmap, in rows from the bottom.
function heatPlace(rows, ns) {
  const row = rows.findIndex(([low, high]) => ns >= low && ns < high);
  if (row < 0) return ns < rows[0][0] ? 0 : rows.length;
  // Rows are linear below a microsecond; above it there are two per octave.
  const [low, high] = rows[row];
  return row + (low > 0 ? Math.log(ns / low) / Math.log(high / low) : ns / high);
}

function heatCells(heat, time, frame, high) {
  const most = Math.max(...heat.flatMap((cells) => cells.filter((_, k) => k % 2)));
  const paths = Array.from({ length: LEVELS + 1 }, () => "");
  heat.forEach((cells, i) => {
    // Edges on whole pixels: neighbours share them, without a gap.
    const x = Math.round(frame.x(time.at[i]));
    const width = Math.max(Math.round(frame.x(time.at[i] + time.length[i])) - x, 1);
    for (let k = 0; k < cells.length; k += 2) {
      const level = most === 1 ? LEVELS : 1 + Math.round(Math.log(cells[k + 1]) / Math.log(most) * (LEVELS - 1));
      const top = Math.round(frame.bottom - (cells[k] + 1) * high);
      paths[level] += `M${x} ${top}h${width}V${Math.round(frame.bottom - cells[k] * high)}h-${width}z`;
    }
  });
  return drawn("g", { class: "cells" }, ...paths.map((d, level) => d ? drawn("path", { "fill-opacity": level / LEVELS, d }) : null));
}

// Waits by length over time.
function heatView({ over }, time) {
  const { heat, heat_rows_ns: rows, waits, p50_ns, p99_ns, max_ns, pending, pending_max_ns } = over;
  return {
    id: "heat", height: Math.min(320, Math.max(140, rows.length * 9)), title: "Waits by length", sub: "a stronger colour: more waits",
    legend: swatches([["stroke p99", "p99"], ["stroke p50", "p50"]]),
    draw: (frame) => {
      const y = (ns) => frame.bottom - heatPlace(rows, ns) * frame.height / rows.length;
      const powers = Array.from({ length: 12 }, (_, n) => 10 ** (n + 3)).filter((ns) => ns >= rows[0][0] && ns <= rows.at(-1)[1]);
      return [
        ...powers.flatMap((ns) => gridLine(frame, y(ns), short(ns))),
        heatCells(heat, time, frame, frame.height / rows.length),
        drawn("path", { class: "series p50", d: steps(time, frame, p50_ns, y) }),
        drawn("path", { class: "series p99", d: steps(time, frame, p99_ns, y) }),
      ];
    },
    says: (i) => {
      const said = [counted(waits[i], "wait")];
      if (waits[i]) said.push(`p50 ${duration(p50_ns[i])}, p99 ${duration(p99_ns[i])}, longest ${duration(max_ns[i])}`);
      if (pending[i]) said.push(`${counted(pending[i], "task")} waiting at a sample, the longest for ${duration(pending_max_ns[i])} so far`);
      return said.join("; ");
    },
  };
}

// CPUs in use over time.
function runningView({ over, cpus }, time) {
  const ran = over.on_cpu_us.map((us, i) => us / time.length[i]);
  const busy = over.busy_us.map((us, i) => us === null ? null : us / time.length[i]);
  const known = busy.some((one) => one !== null);
  return {
    id: "running", height: 120, title: "CPUs in use", sub: cpus ? "of " + cpus : "",
    legend: swatches([["ran", "these tasks"]].concat(known ? [["stroke busy", "the whole host"]] : [])),
    draw: (frame) => {
      const [y, marks] = scale(frame, Math.max(cpus || 0, ...ran, ...busy) * 1.03 || 1, 2, (value) => Number(value.toPrecision(3)));
      return marks.concat(
        drawn("path", { class: "ran", d: area(time, frame, ran.map(() => 0), ran, y) }),
        drawn("path", { class: "series busy", d: steps(time, frame, busy, y) }));
    },
    says: (i) => ran[i].toFixed(2) + " CPUs used" + (busy[i] === null ? "" : ", " + busy[i].toFixed(2) + " by the whole host"),
  };
}

// A quota over time: its use, and how often it ran out.
function quotaView({ path, words, allowed_us, used_us, periods, throttled, throttled_us }, time, number) {
  const used = used_us.map((us, i) => us === null || !allowed_us[i] ? null : 100 * us / allowed_us[i]);
  const out = throttled.map((n, i) => n === null || !periods[i] ? null : 100 * n / periods[i]);
  return {
    id: "quota-" + number, height: 120, title: path, sub: words,
    legend: swatches([["ran", "used of the quota"], ["stroke out", "periods that ran out"]]),
    draw: (frame) => {
      const [y, marks] = scale(frame, Math.max(100, ...used) * 1.05, 2, (value) => value + "%");
      return marks.concat(
        drawn("path", { class: "ran", d: area(time, frame, used.map(() => 0), used.map((one) => one || 0), y) }),
        drawn("path", { class: "series out", d: steps(time, frame, out, y) }));
    },
    says: (i) => {
      if (allowed_us[i] === null) return "no quota at this time";
      const said = [used_us[i] === null ? "use not read" : `used ${duration(used_us[i] * 1e3)} of ${duration(allowed_us[i] * 1e3)} (${share(used_us[i], allowed_us[i])})`];
      if (periods[i] !== null && throttled[i] !== null) said.push(`ran out in ${whole(throttled[i])} of ${counted(periods[i], "period")}`);
      if (throttled_us[i] !== null) said.push(`throttled for ${duration(throttled_us[i] * 1e3)}, summed over CPUs`);
      return said.join("; ");
    },
  };
}
