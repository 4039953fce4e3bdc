
// The page: what is drawn where.
function theme() {
  const choice = document.getElementById("theme");
  const choose = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    for (const button of choice.children) button.setAttribute("aria-pressed", button.dataset.theme === name);
  };
  for (const button of choice.children) button.addEventListener("click", () => choose(button.dataset.theme));
  const asked = /^#(light|dark)$/.exec(location.hash);
  choose(asked ? asked[1] : "auto");
  choice.hidden = false;
}

function tiles(data) {
  const { total } = data;
  const could = total.total_ns + total.on_cpu_ns;
  const figures = [
    ["waited", duration(total.total_ns), total.total_ns, "summed over tasks"],
    ["ran", duration(total.on_cpu_ns), total.on_cpu_ns, "time on a CPU, summed over tasks"],
    ["share waited", share(total.total_ns, could, 1), null, "of the time in which tasks could have run"],
    ["throttled", share(total.by_cause_ns[0], total.total_ns, 1), total.by_cause_ns[0], "of the waiting"],
    ["waits", whole(total.count), total.count, "that ended"],
  ];
  if (data.exact) {
    figures.push(["p50", duration(total.p50_ns), total.p50_ns, "half of the waits were no longer"],
      ["p99", duration(total.p99_ns), total.p99_ns, "99 of 100 waits were no longer"],
      ["longest", duration(total.max_ns), total.max_ns, "the longest wait"]);
  }
  document.getElementById("tiles").append(...figures.map(([name, words, value, says]) =>
    element("div", { title: says }, element("dt", {}, name), element("dd", { "data-value": value }, words))));
}

function charts(data) {
  const parent = document.getElementById("when");
  const time = new Time(data);
  parent.hidden = false;
  const causes = new Chart(time, parent, causesView(data, time));
  if (data.exact && data.over.heat_rows_ns.length) new Chart(time, parent, heatView(data, time));
  const running = new Chart(time, parent, runningView(data, time));
  if (data.paths.length) chooser(data, parent, [causes, running]);
  if (data.quotas.length) {
    const quotas = document.getElementById("quotas");
    quotas.hidden = false;
    data.quotas.forEach((quota, number) => new Chart(time, quotas, quotaView(quota, time, number)));
  }
  time.redraw();
  let width = parent.clientWidth;
  new ResizeObserver(() => {
    if (parent.clientWidth === width) return;
    width = parent.clientWidth;
    time.redraw();
  }).observe(parent);
}

// Whose waits the charts by cgroup show.
function chooser(data, parent, shown) {
  const select = element("select", { id: "whose" }, element("option", { value: "" }, "all tasks"),
    ...data.paths.map((path, n) => element("option", { value: n }, path.path)));
  const choose = () => {
    for (const chart of shown) {
      chart.view.choose(select.value === "" ? null : Number(select.value));
      chart.draw();
    }
  };
  select.addEventListener("change", choose);
  parent.querySelector(".hint").after(element("div", { class: "controls" },
    element("label", {}, "Causes and CPUs of ", select)));
  for (const finding of document.querySelectorAll(".findings li[data-cgroup]")) {
    const n = data.paths.findIndex((path) => path.path === finding.dataset.cgroup);
    if (n < 0) continue;
    const link = element("button", { type: "button", class: "link" }, "Show it over time");
    link.addEventListener("click", () => {
      select.value = String(n);
      choose();
      parent.scrollIntoView();
    });
    finding.querySelector(".cost").append(link);
  }
}

function tables(data) {
  const part = (id) => document.getElementById(id);
  const name = (title, cell) => ({ title, kind: "name", value: (row) => row.name, cell });
  const groups = [["cgroups", data.cgroups, "Cgroup", cgroupName], ["processes", data.processes, "Process", taskName], ["threads", data.threads, "Thread", taskName]];
  for (const [id, table, title, cell] of groups) {
    if (table.rows.length) new Table(part(id), table, groupColumns(data, name(title, cell)), id);
  }
  if (data.pairs.rows.length) {
    const of = (pair) => pair.of_ns ? pair.ns / pair.of_ns : null;
    new Table(part("culprits"), data.pairs, [
      { title: "Victim", kind: "name", value: (pair) => pair.victim, cell: (pair) => pair.victim },
      { title: "Waited", value: (pair) => pair.ns, cell: (pair) => duration(pair.ns), says: "summed over tasks" },
      { title: "Share", value: of, cell: (pair) => share(pair.ns, pair.of_ns), says: "of all the victim's waiting behind others" },
      { title: "Who ran", kind: "name", value: (pair) => pair.culprit, cell: (pair) => pair.culprit },
    ], "who waited behind whom");
  }
}

function sections() {
  const nav = document.querySelector("nav");
  for (const section of document.querySelectorAll("main > section:not([hidden])")) {
    nav.append(element("a", { href: "#" + section.id }, section.querySelector("h2").textContent));
  }
  nav.hidden = false;
}

function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  theme();
  if (data.over.at_us.length) {
    tiles(data);
    charts(data);
    if (data.hist.length) lengthsTable(data, document.getElementById("lengths"));
    if (data.nodes.length) nodesTable(data, document.getElementById("nodes"));
    tables(data);
  }
  sections();
}

main();
