// The page: what the study found, section by section. Sections without data are left out.

const data = JSON.parse(document.getElementById("data").textContent);
const NAMES = { cppo: "CPPO", cpo: "CPO", ppo: "PPO", trpo: "TRPO", ppo_lag: "PPO-Lag", trpo_lag: "TRPO-Lag", ppo_pid: "PPO-PID", trpo_pid: "TRPO-PID", pcpo: "PCPO", focops: "FOCOPS", cpo_hyst: "CPO-Hyst", cpo_shares: "CPO-Shares", crpo: "CRPO", ctrpo: "C-TRPO", p3o: "P3O", c3po: "C3PO", ipo: "IPO", cup: "CUP", mpo: "MPO", cvpo: "CVPO" };
const algorithms = [...new Set(data.groups.map((group) => group.algo))];
const variants = [...new Set(data.groups.map((group) => group.variant).filter((name) => name))];
const environments = [...new Set(data.groups.map((group) => group.env))];
const SHOWN_VARIANTS = 4; // more curves at once cannot be told apart; the others wait for a click
const hidden = new Set();
let singleSeeds = false;

function title(algo) { return NAMES[algo] || algo; }
function nameOf(one) { return one.variant ? (algorithms.length > 1 ? `${title(one.algo)}, ${one.variant}` : one.variant) : title(one.algo); }
function colourOf(algo, variant) {
  const place = variant ? algorithms.length + variants.indexOf(variant) : algorithms.indexOf(algo);
  return `var(--c${place % 8})`;
}
variants.slice(SHOWN_VARIANTS).forEach((variant) => data.groups.filter((group) => group.variant === variant && !isLimitStudy(group.env)).forEach((group) => hidden.add(nameOf(group))));
function limitOf(group) { return Object.values(group.cost_limits)[0]; }
function isLimitStudy(env) {
  const found = data.groups.filter((group) => group.env === env && group.variant);
  return found.length > 2 && found.every((group) => /^limit /.test(group.variant));
}

function section(id, heading, note, ...content) {
  const node = element("section", { id }, element("h2", { text: heading }), note ? element("p", { class: "note", text: note }) : null, ...content);
  document.getElementById("main").append(node);
  document.getElementById("contents").append(element("a", { href: `#${id}`, text: heading }));
  return node;
}

function interval(found, digits = short) {
  if (!found || found[0] === null) return "–";
  const range = found[1] === null ? "" : ` [${digits(found[1])}, ${digits(found[2])}]`;
  return element("span", {}, digits(found[0]), element("small", { text: range }));
}

function verdict(row, name) {
  const cost = row.cost[name][0];
  return cost === null ? "faint" : cost > row.cost_limits[name] ? "bad" : "good";
}

function seedsOf(groups) {
  const numbers = groups.map((group) => group.seeds.length), least = Math.min(...numbers), most = Math.max(...numbers);
  return `${least < most ? `${least} to ` : ""}${most} seed${most > 1 ? "s" : ""}`;
}

// --- at a glance -----------------------------------------------------------------------------------------------------

function glance() {
  const ranked = environments.filter((env) => data.rows.some((row) => row.env === env && row.rank));
  if (!ranked.length) return;
  const tiles = ranked.map((env) => {
    const best = data.rows.find((row) => row.env === env && row.rank === 1);
    const names = Object.keys(best.cost);
    const costs = names.flatMap((name) => [` · ${names.length > 1 ? name : "cost"} `, element("span", { class: verdict(best, name), text: `${short(best.cost[name][0])} / ${tick(best.cost_limits[name])}` })]);
    return element("div", { class: "card tile" },
      element("h3", { text: env }),
      element("div", { class: "big", text: `${nameOf(best)}` }),
      element("div", { class: "small" }, `return ${short(best.mean_return)}`, ...costs),
      element("div", { class: "small", text: best.holds ? `best return within the limit${names.length > 1 ? "s" : ""}${best.leads ? "" : " (its lead is within noise)"}, ${best.within_count} of ${best.seeds} seed${best.seeds > 1 ? "s" : ""} within` : `none keeps the limit with most of its seeds; this one is nearest (${best.within_count} of ${best.seeds} within)` }));
  });
  section("glance", "At a glance", "For each environment the algorithm that ranks first: those within the limit, in the mean and in most of their seeds, before the others; then by return. Means over seeds and the last tenth of training.", element("div", { class: "tiles" }, ...tiles));
}

// --- learning curves -------------------------------------------------------------------------------------------------

function seriesOf(groups, column) {
  return groups.filter((group) => !hidden.has(nameOf(group))).flatMap((group) => {
    const curves = group.seeds.map((seed) => seed.curve).filter((curve) => curve && curve[column]);
    const look = { name: nameOf(group), colour: colourOf(group.algo, group.variant) };
    if (singleSeeds) return curves.map((curve) => ({ ...look, x: curve.steps, lines: [curve[column]] }));
    return curves.length ? [{ ...look, ...together(curves.map((curve) => curve.steps), curves.map((curve) => curve[column])), band: true }] : [];
  });
}

function legend(groups) {
  const buttons = [...new Map(groups.map((group) => [nameOf(group), group])).values()].map((group) => {
    const dot = element("span", { class: "dot" });
    dot.style.background = colourOf(group.algo, group.variant);
    const button = element("button", { type: "button", "aria-pressed": `${!hidden.has(nameOf(group))}`, "data-name": nameOf(group) }, dot, nameOf(group));
    button.addEventListener("click", () => {
      hidden.has(nameOf(group)) ? hidden.delete(nameOf(group)) : hidden.add(nameOf(group));
      for (const other of document.querySelectorAll("[data-name]")) other.setAttribute("aria-pressed", `${!hidden.has(other.dataset.name)}`);
      redraw();
    });
    return button;
  });
  const choice = element("button", { type: "button", class: "choice", text: "Show single seeds" });
  choice.addEventListener("click", () => {
    singleSeeds = !singleSeeds;
    for (const other of document.querySelectorAll(".choice")) other.textContent = singleSeeds ? "Show mean and spread" : "Show single seeds";
    redraw();
  });
  return element("div", { class: "legend" }, ...buttons, choice);
}

function curves(id, heading, note, wanted) {
  const groups = data.groups.filter((group) => wanted(group) && group.seeds.some((seed) => seed.curve));
  if (!groups.length) return;
  const cards = [...new Set(groups.map((group) => group.env))].map((env) => {
    const here = groups.filter((group) => group.env === env);
    const limits = here[0].cost_limits;
    return element("div", { class: "card" }, element("h3", {}, env, element("small", { class: "faint", text: `  ${seedsOf(here)}, ${short(Math.max(...here.map((group) => group.steps)))} steps each` })),
      chart(() => seriesOf(here, "return"), { title: "episode return", height: 220 }),
      ...Object.entries(limits).map(([name, limit], i, all) => chart(() => seriesOf(here, name), { title: all.length > 1 ? `episode cost: ${name}` : "episode cost", height: 190, limit: here.every((group) => group.cost_limits[name] === limit) ? limit : null, zero: true, within: [0, Infinity], xlabel: i === all.length - 1 ? "environment steps" : "" })));
  });
  section(id, heading, note, legend(groups), element("div", { class: "grid" }, ...cards));
}

// --- tables ----------------------------------------------------------------------------------------------------------

function finals() {
  const cards = environments.map((env) => {
    const rows = data.rows.filter((row) => row.env === env).sort((a, b) => (a.rank || 99) - (b.rank || 99));
    const head = ["", "#", "seeds", "return (IQM)", "cost", "worst seed", "within", "worst tenth", "episodes over", "iterations over", "excess cost", "switches", "steps to limit", "to 90%", "return within"];
    const body = rows.map((row) => {
      const cells = Object.entries(row.cost).map(([name, cost]) => {
        const mark = { bad: "✗ ", good: "✓ ", faint: "" }[verdict(row, name)];
        return element("div", { class: verdict(row, name) }, Object.keys(row.cost).length > 1 ? `${name} ` : "", mark, interval(cost), ` / ${tick(row.cost_limits[name])}`);
      });
      return element("tr", { class: row.leads ? "lead" : "" },
        element("td", {}, nameOf(row)), element("td", { text: row.rank || "" }), element("td", { text: row.seeds }),
        element("td", {}, interval(row.return_iqm)), element("td", {}, ...cells),
        element("td", { text: Object.values(row.worst_cost).map(short).join(", ") }),
        element("td", {}, `${row.within_count}/${row.seeds}`, element("small", { text: ` [${Math.round(100 * row.within[1])}, ${Math.round(100 * row.within[2])}]%` })),
        element("td", { text: Object.values(row.worst_tenth).map(short).join(", ") || "–" }),
        element("td", { text: Object.values(row.episodes_over).map((x) => `${Math.round(100 * x)}%`).join(", ") || "–" }),
        element("td", { text: row.violation_rate === null ? "–" : `${Math.round(100 * row.violation_rate)}%` }),
        element("td", { text: short(row.excess_cost) }),
        element("td", { text: short(row.switches) }),
        element("td", { text: row.first_feasible === null ? (row.never_feasible ? "never" : "–") : short(row.first_feasible) + (row.never_feasible ? ` (${row.never_feasible} never)` : "") }),
        element("td", { text: short(row.to_90) }),
        element("td", { text: row.wanted === null ? "–" : `${row.wanted}: ${short(row.until_wanted)}` + (row.never_wanted ? ` (${row.never_wanted} never)` : "") }));
    });
    return element("div", { class: "card scroll", style: "margin-bottom:16px" }, element("h3", { text: env }),
      element("table", {}, element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { text })))), element("tbody", {}, ...body)));
  });
  section("results", "Final results", "Marked: first within the limit, and ahead by more than noise (Welch’s test, 5%). Return: interquartile mean over seeds, from five seeds on with a bootstrap interval, which covers 90 to 94% of normal values. Cost: mean with Student’s 95% interval, limit behind it. Within: seeds that ended within the limit, share with Wilson’s 95% interval. Iterations over: share of training. Switches: changes between normal and recovery updates. Steps to limit: until it is first held for a tenth of training; to 90%: until the return reaches 90% of its end. Excess cost: the mean cost of each twentieth of training above the limit, times its steps over the longest episode, per seed. Worst tenth, episodes over: fresh episodes of the final policies. Return within: steps until a twentieth of training has that mean return and a cost within the limit.", ...cards);
}

function published() {
  const rows = data.rows.filter((row) => row.published.length);
  if (!rows.length) return;
  const sources = [...new Set(rows.flatMap((row) => row.published.map((one) => one[2])))];
  const body = rows.map((row) => {
    const cost = Object.values(row.cost)[0][0];
    const pair = (reward, value) => [`${short(reward)} / `, element("span", { class: value > limitOf(row) ? "bad" : "good", text: short(value) })];
    return element("tr", {}, element("td", { text: row.env }), element("td", { class: "left", text: nameOf(row) }), element("td", { text: tick(limitOf(row)) }), element("td", {}, ...pair(row.mean_return, cost)),
      ...sources.map((source) => { const one = row.published.find((found) => found[2] === source); return element("td", {}, ...(one ? pair(one[0], one[1]) : ["–"])); }));
  });
  section("published", "Beside published figures", "Final return / cost, the cost red where it is over the limit. The paper’s were read by eye off its figures; OmniSafe’s are its benchmark table. Other code, environments that are not identical, and often more steps: yardsticks.", element("div", { class: "card scroll" },
    element("table", {}, element("thead", {}, element("tr", {}, ...["", "", "limit", "here", ...sources].map((text, i) => element("th", { text, class: i === 1 ? "left" : null })))), element("tbody", {}, ...body))));
}

function improvement() {
  if (!data.improvements.length) return;
  const rows = data.improvements.map((row) => {
    const [value, low, high] = row.probability, track = element("span", { class: "bar-track" });
    const range = element("i"), mark = element("b");
    if (low !== null && high !== null) {
      range.style.left = `${100 * low}%`; range.style.width = `${Math.max(1, 100 * (high - low))}%`;
      track.append(range);
    }
    if (value !== null) {
      mark.style.left = `calc(${100 * value}% - 1px)`;
      track.append(mark);
    }
    return element("tr", {}, element("td", { text: `${title(row.algo)} over ${title(row.other)}` }), element("td", {}, track), element("td", {}, interval(row.probability, (x) => `${Math.round(100 * x)}%`)), element("td", { class: "left faint", text: row.envs.join(", ") }));
  });
  section("improvement", "Probability of improvement", "How probably a random seed of the first beats a random seed of the second, averaged over environments, with 95% intervals. Seeds within the limit come before those over it, whatever their return.", element("div", { class: "card scroll" }, element("table", {}, element("tbody", {}, ...rows))));
}

// --- variants --------------------------------------------------------------------------------------------------------

function ablation() {
  const cards = [];
  for (const env of environments) {
    if (isLimitStudy(env)) continue;
    for (const algo of algorithms) {
      const rows = data.rows.filter((row) => row.env === env && row.algo === algo);
      if (rows.length < 2) continue;
      const named = (row) => row.variant || "as chosen";
      const colour = (row) => (row.variant ? colourOf(row.algo, row.variant) : "var(--accent)");
      const dots = (found) => ({ value: found[0], low: found[1], high: found[2] });
      const names = Object.keys(rows[0].cost);
      const same = (name) => rows.every((row) => row.cost_limits[name] === rows[0].cost_limits[name]);
      cards.push(element("div", { class: "card" }, element("h3", { text: `${title(algo)} on ${env}` }),
        element("div", { class: "grid" },
          intervals(rows.map((row) => ({ name: named(row), colour: colour(row), ...dots(row.mean_return_t) })), { title: "final return, mean and 95% interval" }),
          ...names.map((name) => intervals(rows.map((row) => ({ name: named(row), colour: colour(row), ...dots(row.cost[name]), limit: row.cost_limits[name] })), { title: `final ${names.length > 1 ? name : "cost"}${same(name) ? `, limit ${tick(rows[0].cost_limits[name])}` : " (dashed: its limit)"}` })))));
    }
  }
  if (cards.length) section("ablation", "One thing changed at a time", "Each line is the same algorithm with one setting changed; dots are means over seeds, bars Student’s 95% intervals.", ...cards);
}

function limits() {
  const cards = environments.filter(isLimitStudy).flatMap((env) => {
    const groups = (column) => algorithms.filter((algo) => !hidden.has(title(algo))).map((algo) => {
      const rows = data.rows.filter((row) => row.env === env && row.algo === algo && /^limit /.test(row.variant)).sort((a, b) => limitOf(a) - limitOf(b));
      return { name: title(algo), colour: colourOf(algo, ""), x: rows.map(limitOf), lines: [rows.map(column)], points: true, joined: true, radius: 4, opacity: 0.9, width: 2 };
    });
    const names = element("div", { class: "legend" }, ...algorithms.map((algo) => {
      const dot = element("span", { class: "dot" });
      dot.style.background = colourOf(algo, "");
      return element("span", { class: "keys" }, element("span", {}, dot, title(algo)));
    }));
    return [names, element("div", { class: "grid" },
      element("div", { class: "card" }, chart(() => groups((row) => row.mean_return), { title: `${env}: final return`, height: 260, xlabel: "cost limit", hover: false })),
      element("div", { class: "card" }, chart(() => groups((row) => Object.values(row.cost)[0][0]), { title: `${env}: final cost (dashed: the limit)`, height: 260, xlabel: "cost limit", diagonal: true, hover: false })))];
  });
  if (cards.length) section("limits", "Return against the cost limit", "What a tighter limit costs. Points below the dashed line keep it.", ...cards);
}

// --- update geometry -------------------------------------------------------------------------------------------------

function diagnostics() {
  const groups = data.groups.filter((group) => group.seeds.some((seed) => seed.diagnostics && seed.diagnostics.kl));
  if (!groups.length) return;
  const box = element("div", { class: "grid" });
  const select = element("select", { id: "geometry" });
  groups.forEach((group, i) => select.append(element("option", { value: i, text: `${nameOf(group)} on ${group.env}` })));
  const fill = () => {
    const group = groups[+select.value], seeds = group.seeds.filter((seed) => seed.diagnostics && seed.curve);
    const has = (name) => seeds.some((seed) => seed.diagnostics[name]);
    const one = (name, label, colour, scale = 1) => {
      const known = seeds.filter((seed) => seed.diagnostics[name]), scaled = (v) => (v === null ? null : v * scale);
      return { name: label, colour, ...together(known.map((seed) => seed.curve.steps), known.map((seed) => seed.diagnostics[name].map(scaled))), band: true };
    };
    const trust = seeds.flatMap((seed) => seed.diagnostics.kl_limit || []).find((limit) => limit !== null) ?? null;
    const cards = [];
    const add = (series, options) => cards.push(element("div", { class: "card" }, chart(series, { height: 210, xlabel: "environment steps", ...options })));
    if (has("kl")) add([one("kl", "KL", "var(--c0)")], { title: "KL of an update", zero: true, limit: trust, limitLabel: "trust region" });
    if (has("recovery")) add([one("recovery", "recovery", "var(--c1)", 100)], { title: "iterations in recovery, %", zero: true, within: [0, 100] });
    if (has("theta")) add([one("theta", "chosen θ", "var(--c0)", 57.2958), ...(has("theta_reward") ? [one("theta_reward", "best reward", "var(--c2)", 57.2958)] : []), ...(has("theta_feasible") ? [{ ...one("theta_feasible", "just feasible", "var(--c3)", 57.2958), dash: "4 3" }] : [])], { title: "angles in the advantages’ plane, degrees", keys: true });
    if (has("tracking_error")) add([one("tracking_error", "error", "var(--c7)")], { title: "tracking error ‖v − r‖ / ‖v − 1‖", zero: true });
    if (has("calibration")) add([one("calibration", "factor", "var(--c6)")], { title: "calibration of promised costs" });
    if (has("multiplier")) add([one("multiplier", "λ", "var(--c3)")], { title: "multiplier", zero: true });
    if (has("predicted")) {
      const x = seeds.flatMap((seed) => seed.diagnostics.predicted || []), y = seeds.flatMap((seed) => seed.diagnostics.realised || []);
      const known = x.map((v, i) => [v, y[i]]).filter(([a, b]) => a !== null && b !== null);
      if (known.length) add([{ name: "updates", colour: "var(--c0)", x: known.map(([a]) => a), lines: [known.map(([, b]) => b)], points: true }], { title: "change in cost (dashed: as promised on the update’s own batch)", xlabel: "predicted change; upwards: realised", tightX: true, diagonal: true, hover: false });
    }
    box.replaceChildren(...cards);
  };
  select.addEventListener("change", fill);
  fill();
  section("geometry", "Geometry of the updates", "How far updates went, where to, and whether the cost did as its own batch promised: means over seeds and one standard deviation.", element("div", { class: "controls" }, element("label", {}, "Runs of", select)), box);
}

// --- the paper's claims about single updates -------------------------------------------------------------------------

function plainTable(head, rows) {
  return element("div", { class: "card scroll", style: "margin-bottom:16px" }, element("table", {}, element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { text })))),
    element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells.map((text) => element("td", { text })))))));
}

function updates() {
  const rows = data.rows.filter((row) => row.updates && row.updates.target_kl !== undefined || row.update_seconds);
  if (!rows.length) return;
  const percent = (value) => (value === null || value === undefined ? "–" : `${+(100 * value).toPrecision(2)}%`);
  const cells = rows.map((row) => {
    const cpo = data.rows.find((other) => other.env === row.env && other.algo === "cpo" && !other.variant);
    const ratio = row.update_seconds && cpo && cpo.update_seconds ? (row.update_seconds / cpo.update_seconds).toFixed(2) : "–";
    const seen = row.updates || {};
    return [`${nameOf(row)} on ${row.env}`, short(seen.kl), short(seen.tracking_error), short(seen.target_kl), percent(seen.target_kl_within), percent(seen.above_two_share), row.update_seconds ? `${(1000 * row.update_seconds).toFixed(0)} ms` : "–", ratio];
  });
  section("updates", "What an update is like", "Means over seeds and all of training. E[v log v]: KL(q‖π) of the E-step’s target, which the paper puts between δ and δ′ while v < 2, and the share of updates of which that is true. Time of one update of one seed by itself, where it was measured.",
    plainTable(["", "KL", "tracking error", "E[v log v]", "between δ and δ′", "v ≥ 2", "update", "of CPO’s"], cells));
}

function paths() {
  const seeds = (data.measured && data.measured.paths) || [];
  if (!seeds.length) return;
  const number = (value, digits = 1) => (value === null ? "–" : value.toFixed(digits));
  const rows = data.pathRows.map((row) => [`β ${row.beta}, ${row.waypoints} target${row.waypoints > 1 ? "s" : ""}`, `${row.arrived}/${row.seeds}`, number(row.epochs), number(row.reward_then), number(row.cost_share, 2), number(row.reward), short(row.kl)]);
  const cards = seeds.flatMap((seed) => [...new Set(seed.ways.map((way) => way.waypoints))].map((count) => {
    const ways = seed.ways.filter((way) => way.waypoints === count), ys = seed.ways.flatMap((way) => way.y);
    const series = ways.map((way, i) => ({ name: `β = ${way.beta}`, colour: `var(--c${i})`, x: way.x, lines: [way.y], points: true, joined: true, opacity: 0.8, width: 1.6 }));
    const edge = { name: "limit kept to the left", colour: "var(--bad)", x: [seed.budget, seed.budget], lines: [[Math.min(...ys), Math.max(...ys)]], dash: "5 4" };
    return element("div", { class: "card" }, chart([...series, edge], { title: `${seed.env}, seed ${seed.seed}, ${count} target${count > 1 ? "s" : ""}`, height: 250, xlabel: "cost (along e_c); upwards: reward (along e_r)", tightX: true, hover: false, keys: true }));
  }));
  section("paths", "Paths of recovery updates", "Where the policy’s ratios stand after each epoch of one recovery update, repeated with other β and other numbers of targets along the way; it starts at (0, 0). Table: paths that arrive within the limit as predicted, after how many epochs, the change of the return then; cost change at the end in shares of what is needed, and the return’s.",
    plainTable(["", "arrive", "epochs", "return then", "cost at the end", "return at the end", "KL"], rows), element("div", { class: "grid" }, ...cards));
}

// --- the rest --------------------------------------------------------------------------------------------------------

function provenance() {
  const machines = data.versions.map((one) => element("tr", {}, ...["platform", "cpu_count", "python", "jax", "mujoco", "cppo", "git_commit"].map((name) => element("td", { class: "left", text: one[name] === null || one[name] === undefined ? "–" : `${one[name]}`.slice(0, 46) }))));
  const settings = data.groups.map((group) => element("details", {}, element("summary", { text: `${nameOf(group)} on ${group.env} (${group.backend})` }), element("pre", { text: Object.entries(group.settings || {}).map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join("\n") })));
  const together = new Map();
  for (const one of data.unfinished) {
    const name = `${nameOf(one)} on ${one.env}`;
    together.set(name, [...(together.get(name) || []), one.seed]);
  }
  const problems = [...data.failed.map((one) => element("tr", {}, element("td", { class: "bad", text: `${nameOf(one)} on ${one.env}, seed ${one.seed}` }), element("td", { class: "left", style: "white-space:normal", text: one.error }))),
    ...[...together].map(([name, seeds]) => element("tr", {}, element("td", { text: name }), element("td", { class: "left faint", text: `not finished: seed${seeds.length > 1 ? "s" : ""} ${seeds.join(", ")}` })))];
  if (problems.length) section("problems", "Failed and unfinished runs", "", element("div", { class: "card scroll" }, element("table", {}, element("tbody", {}, ...problems))));
  section("provenance", "Hardware, versions, settings", (data.draft || []).length ? `Draft: ${data.draft.join("; ")}.` : "", element("div", { class: "card scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...["platform", "cores", "Python", "JAX", "MuJoCo", "cppo", "commit"].map((text) => element("th", { class: "left", text })))), element("tbody", {}, ...machines))), ...settings);
}

// A table that is wider than its frame says so, since a phone shows no scroll bar.
function hints() {
  for (const box of document.querySelectorAll(".scroll")) {
    const hint = element("p", { class: "hint", text: "wider than the window: scroll sideways →" });
    box.prepend(hint);
    new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth + 1; }).observe(box);
  }
}

function theme() {
  const button = document.getElementById("theme"), order = ["auto", "light", "dark"];
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    button.querySelector("span").textContent = next;
    redraw();
  });
}

const runs = data.groups.reduce((sum, group) => sum + group.seeds.length, 0);
document.getElementById("lede").textContent = `${runs} finished runs: ${environments.length} environment${environments.length === 1 ? "" : "s"} (${environments.join(", ")}), ${algorithms.map(title).join(", ")}.` + (data.failed.length ? ` ${data.failed.length} failed.` : "") + (data.unfinished.length ? ` ${data.unfinished.length} not finished.` : "");
theme();
if (data.groups.length) {
  glance();
  curves("curves", "Learning curves", "Return above, cost below with its limit (dashed): mean over seeds and one standard deviation to each side. Click a name to hide it; point at a curve to read it.", (group) => !group.variant);
  limits();
  finals();
  published();
  ablation();
  curves("variants", "Learning curves of the variants", variants.length > SHOWN_VARIANTS ? "Click a name to show or hide it." : "", (group) => group.variant && !isLimitStudy(group.env));
  if (data.replays.length) section("replay", "Episodes, seen from above", "Recorded from the saved policies with actions sampled as in training, all algorithms on the same layouts; each algorithm by the seed whose final return is the median.", ...replaySection(data.replays));
  improvement();
  updates();
  paths();
  diagnostics();
}
provenance();
hints();
