
// The page: its figures, charts and tables.
function tiles({ total, exact }) {
  const could = total.total_ns + total.on_cpu_ns;
  const figures = [
    ["waited", duration(total.total_ns), total.total_ns, "summed over tasks"],
    ["ran", duration(total.on_cpu_ns), total.on_cpu_ns, "time on a CPU, summed over tasks"],
    ["share waited", share(total.total_ns, could, 1), null, "of the time in which tasks were runnable"],
    ["throttled", share(total.by_cause_ns[0], total.total_ns, 1), total.by_cause_ns[0], "of the waiting"],
    ["waits", whole(total.count), total.count, "that ended"],
  ];
  if (exact) {
    figures.push(["p50", duration(total.p50_ns), total.p50_ns, "half of the waits were at most this long"],
      ["p99", duration(total.p99_ns), total.p99_ns, "99% of the waits were at most this long"],
      ["longest", duration(total.max_ns), total.max_ns, "the longest wait"]);
  }
  document.getElementById("tiles").append(...figures.map(([name, words, value, says]) =>
    element("div", { title: says }, element("dt", {}, name), element("dd", { "data-value": value }, words))));
}

// Shows a section that has content.
function section(id) {
  const found = document.getElementById(id);
  found.hidden = false;
  return found;
}

function charts(data) {
  const parent = section("when");
  const time = new Time(data);
  new Chart(time, parent, causesView(data, time));
  if (data.exact && data.over.heat_rows_ns.length) new Chart(time, parent, heatView(data, time));
  new Chart(time, parent, runningView(data, time));
  data.quotas.forEach((quota, number) => new Chart(time, section("quotas"), quotaView(quota, time, number)));
  time.redraw();
  let width = parent.clientWidth;
  new ResizeObserver(() => {
    if (parent.clientWidth === width) return;
    width = parent.clientWidth;
    time.redraw();
  }).observe(parent);
}

function tables(data) {
  const name = (title, key) => ({ title, kind: "name", value: (row) => row[key], cell: (row) => row[key] });
  const groups = [["cgroups", "Cgroup", cgroupName], ["processes", "Process", taskName], ["threads", "Thread", taskName]];
  for (const [id, title, cell] of groups) {
    if (data[id].rows.length) new Table(section(id), data[id], groupColumns(data, { ...name(title, "name"), cell }), id);
  }
  if (data.pairs.rows.length) {
    new Table(section("culprits"), data.pairs, [
      name("Victim", "victim"),
      { title: "Waited", value: (pair) => pair.ns, cell: (pair) => duration(pair.ns), says: "summed over tasks" },
      { title: "Share", value: (pair) => pair.ns / pair.of_ns, cell: (pair) => share(pair.ns, pair.of_ns), says: "of all the victim's waiting behind others" },
      name("Who ran", "culprit"),
    ], "who waited behind whom");
  }
  if (data.sleeps.rows.length) {
    new Table(section("sleeps"), data.sleeps, [
      name("Sleeper", "sleeper"),
      { title: "Slept", value: (sleep) => sleep.ns, cell: (sleep) => duration(sleep.ns), says: "summed over tasks" },
      { title: "Share", value: (sleep) => sleep.ns / sleep.of_ns, cell: (sleep) => share(sleep.ns, sleep.of_ns), says: "of all the sleeper's sleep" },
      name("In", "kind"),
      name("Waker", "waker"),
      name("What the waker did", "did"),
    ], "sleeps for others");
  }
}

const data = JSON.parse(document.getElementById("data").textContent);
if (data.over.at_us.length) {
  tiles(data);
  charts(data);
  if (data.hist.length) lengthsTable(data, section("lengths"));
  tables(data);
}
