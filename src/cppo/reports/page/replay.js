// Episodes from above, several algorithms side by side: play, pause, drag, choose.

function replaySection(all) {
  const replays = all.filter((one) => one.episodes);
  const missing = all.filter((one) => !one.episodes).map((one) => element("p", { class: "note", style: "margin-top:14px", text: `Left out: ${nameOf(one)} on ${one.env}, seed ${one.seed} (${one.error}).` }));
  return replays.length ? [...player(replays), ...missing] : missing;
}

function player(replays) {
  const environments = [...new Set(replays.map((one) => one.env))];
  const state = { env: environments[0], episode: 0, frame: 0, playing: false, speed: 1, hidden: new Set(), clock: 0 };
  const stage = element("div", { class: "stage", id: "stage" });
  const slider = element("input", { type: "range", id: "slider", min: 0, value: 0, "aria-label": "Step of the episode" });
  const clock = element("span", { class: "clock", id: "clock" });
  const play = element("button", { type: "button", id: "play", text: "▶ Play" });
  const chosen = () => replays.filter((one) => one.env === state.env);
  const length = () => Math.max(...chosen().map((one) => one.episodes[Math.min(state.episode, one.episodes.length - 1)].cost.length));
  let panels = [];

  const options = (id, label, names, change) => {
    const select = element("select", { id, onchange: (event) => change(event.target.value) });
    names.forEach(([value, text]) => select.append(element("option", { value, text })));
    return element("label", {}, label, select);
  };
  const speeds = options("speed", "Speed", [["0.5", "½×"], ["1", "1×"], ["2", "2×"], ["5", "5×"]], (value) => (state.speed = +value));
  speeds.querySelector("select").value = "1";
  const episodes = element("label", {}, "Episode");
  const toggles = element("div", { class: "legend" });

  function setUp() {
    const runs = chosen();
    const count = Math.max(...runs.map((one) => one.episodes.length));
    const select = element("select", { id: "episode", onchange: (event) => { state.episode = +event.target.value; state.frame = 0; build(); } });
    for (let i = 0; i < count; i++) select.append(element("option", { value: i, text: `${i + 1}` }));
    state.episode = Math.min(state.episode, count - 1);
    select.value = `${state.episode}`;
    episodes.replaceChildren("Episode", select);
    toggles.replaceChildren(...runs.map((one) => {
      const dot = element("span", { class: "dot" });
      dot.style.background = colourOf(one.algo, one.variant);
      const button = element("button", { type: "button", "aria-pressed": `${!state.hidden.has(nameOf(one))}` }, dot, nameOf(one));
      button.addEventListener("click", () => {
        state.hidden.has(nameOf(one)) ? state.hidden.delete(nameOf(one)) : state.hidden.add(nameOf(one));
        button.setAttribute("aria-pressed", `${!state.hidden.has(nameOf(one))}`);
        build();
      });
      return button;
    }));
    name();
    build();
  }

  function build() {
    slider.max = length() - 1;
    panels = chosen().filter((one) => !state.hidden.has(nameOf(one))).map((one) => {
      const episode = one.episodes[Math.min(state.episode, one.episodes.length - 1)];
      const canvas = element("canvas", { role: "img", "aria-label": `${nameOf(one)} on ${one.env}, seen from above` });
      const dot = element("span", { class: "dot" });
      dot.style.background = colourOf(one.algo, one.variant);
      const numbers = element("span");
      const figure = element("figure", { class: "card" }, canvas, element("figcaption", {}, element("strong", {}, dot, `${nameOf(one)}`, element("small", { class: "faint", text: `seed ${one.seed}` })), numbers));
      const totals = { reward: cumulative(episode.reward), cost: cumulative(episode.cost) };
      return { one, episode, canvas, figure, numbers, totals };
    });
    stage.replaceChildren(...panels.map((panel) => panel.figure));
    paint();
  }

  function paint() {
    const style = getComputedStyle(document.documentElement);
    const paintOf = (name) => style.getPropertyValue(`--${name}`).trim();
    slider.value = Math.floor(state.frame);
    const view = joined(panels.map((panel) => panel.episode.view));
    clock.textContent = `step ${Math.floor(state.frame)} / ${slider.max}`;
    for (const panel of panels) {
      const frame = Math.min(Math.floor(state.frame), panel.episode.cost.length - 1);
      drawFrame(panel.canvas, panel.episode, view, frame, paintOf);
      panel.figure.classList.toggle("hit", panel.episode.cost[frame] > 0);
      const limit = panel.one.limit, cost = panel.totals.cost[frame];
      panel.numbers.replaceChildren(`return ${short(panel.totals.reward[frame])} · cost `, element("span", { class: cost > limit ? "bad" : "good", text: `${+cost.toFixed(1)} / ${tick(limit)}` }));
    }
  }

  function run(now) {
    if (!state.playing) return;
    // Long episodes run at 50 steps a second, short ones slowly enough to be followed.
    const rate = state.speed * (slider.max > 200 ? 50 : 12);
    state.frame = state.clock ? state.frame + Math.min(0.25, (now - state.clock) / 1000) * rate : state.frame;
    state.clock = now;
    if (state.frame >= +slider.max) { state.frame = +slider.max; stop(); }
    paint();
    if (state.playing) requestAnimationFrame(run);
  }
  function stop() { state.playing = false; play.textContent = "▶ Play"; }
  function toggle() {
    if (state.playing) return stop();
    if (state.frame >= +slider.max) state.frame = 0;
    state.playing = true;
    state.clock = 0;
    play.textContent = "❚❚ Pause";
    requestAnimationFrame(run);
  }
  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => { stop(); state.frame = +slider.value; paint(); });

  const environmentChoice = options("replay-env", "Environment", environments.map((env) => [env, env]), (value) => { state.env = value; state.frame = 0; stop(); setUp(); });
  const keys = element("div", { class: "keys" });
  function name() {
    const present = new Set(chosen().flatMap((one) => [...one.episodes[0].fixed, ...one.episodes[0].moving].map((thing) => thing.kind)));
    const kinds = [["agent", "agent", "robot"], ["hazard", "hazard", "hazard, costs 1 a step"], ["goal", "goal", "goal"], ["box", "box", "box to push"], ["vase", "vase", "vase"], ["pillar", "pillar", "pillar"], ["button", "button", "button"], ["gremlin", "gremlin", "gremlin, costs 1 to touch"], ["ring", "goal", "circle to run along"], ["band", "bad", "beyond the dashed lines a step costs 1"], ["agent", "bad", "path and frame turn red at a cost"]];
    keys.replaceChildren(...kinds.filter(([kind]) => present.has(kind)).map(([, colour, text]) => {
      const dot = element("span", { class: "dot" });
      dot.style.background = `var(--${colour})`;
      return element("span", {}, dot, text);
    }));
  }
  setUp();
  responsive(stage, paint);
  return [toggles, element("div", { class: "controls" }, play, slider, clock, speeds, environmentChoice, episodes), stage, keys];
}

function cumulative(values) {
  let sum = 0;
  return values.map((value) => (sum += value));
}

// One square for all panels, so that sizes can be compared.
function joined(views) {
  const low = [0, 1].map((axis) => Math.min(...views.map((view) => view[axis])));
  const side = Math.max(...[0, 1].map((axis) => Math.max(...views.map((view) => view[axis] + view[2])) - low[axis]));
  return [...low, side];
}

function drawFrame(canvas, episode, view, frame, paintOf) {
  const width = canvas.clientWidth || 260, ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = canvas.height = Math.round(width * ratio);
  const pen = canvas.getContext("2d");
  const [x0, y0, side] = view, scale = width / side;
  const X = (x) => (x - x0) * scale, Y = (y) => width - (y - y0) * scale;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, width);
  const things = [...episode.fixed.map((one) => [one, one.at]), ...episode.moving.filter((one) => one.kind !== "agent").map((one) => [one, one.track[frame]])];
  for (const order of ["band", "ring", "hazard", "goal", "pillar", "button", "vase", "gremlin", "box", "limb"])
    for (const [one, at] of things) if (one.kind === order) drawThing(pen, one, at, X, Y, scale, width, paintOf);
  const agent = episode.moving.find((one) => one.kind === "agent") || episode.fixed.find((one) => one.kind === "agent");
  const track = agent.track || [agent.at];
  drawPath(pen, track, episode.cost, Math.min(frame, track.length - 1), X, Y, paintOf);
  drawAgent(pen, agent, track[Math.min(frame, track.length - 1)], episode.cost, frame, X, Y, scale, paintOf);
}

function drawThing(pen, one, at, X, Y, scale, width, paintOf) {
  const x = X(at[0]), y = Y(at[1]), size = one.size * scale;
  pen.globalAlpha = 1;
  if (one.kind === "band") {
    const [low, high] = one.axis === "y" ? [Y(one.size), Y(-one.size)] : [X(-one.size), X(one.size)];
    pen.save();
    if (one.axis === "y") pen.transform(0, 1, 1, 0, 0, 0); // as for x, mirrored at the diagonal
    pen.globalAlpha = 0.1; pen.fillStyle = paintOf("bad");
    pen.fillRect(0, 0, low, width); pen.fillRect(high, 0, width, width);
    pen.globalAlpha = 0.8; pen.strokeStyle = paintOf("bad"); pen.lineWidth = 1.4; pen.setLineDash([6, 4]);
    for (const edge of [low, high]) { pen.beginPath(); pen.moveTo(edge, 0); pen.lineTo(edge, width); pen.stroke(); }
    pen.restore();
  } else if (one.kind === "ring") {
    pen.strokeStyle = paintOf("goal"); pen.lineWidth = 2; pen.globalAlpha = 0.75;
    pen.beginPath(); pen.arc(x, y, size, 0, 7); pen.stroke();
  } else if (one.kind === "limb") {
    pen.strokeStyle = paintOf("soft"); pen.lineWidth = Math.max(1.5, 2 * size); pen.lineCap = "round"; pen.globalAlpha = 0.8;
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(X(at[2]), Y(at[3])); pen.stroke();
  } else if (one.kind === "box" || one.kind === "vase" || one.kind === "gremlin") {
    pen.save(); pen.translate(x, y); pen.rotate(-(at[2] || 0));
    pen.globalAlpha = 0.85; pen.fillStyle = paintOf(one.kind); pen.fillRect(-size, -size, 2 * size, 2 * size);
    pen.restore();
  } else {
    pen.fillStyle = pen.strokeStyle = paintOf(one.kind);
    pen.globalAlpha = one.kind === "pillar" || one.kind === "button" ? 0.9 : 0.3;
    pen.beginPath(); pen.arc(x, y, size, 0, 7); pen.fill();
    pen.globalAlpha = 0.9; pen.lineWidth = 1.4; pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawPath(pen, track, cost, frame, X, Y, paintOf) {
  const first = Math.max(1, frame - 250);
  pen.lineCap = "round";
  for (let i = first; i <= frame; i++) {
    pen.globalAlpha = 0.15 + 0.65 * ((i - first + 1) / (frame - first + 1));
    pen.strokeStyle = cost[i] > 0 ? paintOf("bad") : paintOf("soft");
    pen.lineWidth = cost[i] > 0 ? 2.6 : 1.5;
    pen.beginPath(); pen.moveTo(X(track[i - 1][0]), Y(track[i - 1][1])); pen.lineTo(X(track[i][0]), Y(track[i][1])); pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawAgent(pen, agent, at, cost, frame, X, Y, scale, paintOf) {
  const x = X(at[0]), y = Y(at[1]), size = Math.max(7, agent.size * scale), turn = -at[2];
  // A cost flashes: a ring that widens and fades over the next steps.
  for (let back = 0; back < 8 && frame - back >= 0; back++) {
    if (!(cost[frame - back] > 0)) continue;
    pen.globalAlpha = 0.5 * (1 - back / 8); pen.strokeStyle = paintOf("bad"); pen.lineWidth = 3;
    pen.beginPath(); pen.arc(x, y, size * (1.3 + back * 0.22), 0, 7); pen.stroke();
    break;
  }
  pen.globalAlpha = 1; pen.fillStyle = paintOf("agent"); pen.strokeStyle = paintOf("card"); pen.lineWidth = 1.5;
  pen.save(); pen.translate(x, y); pen.rotate(turn);
  pen.beginPath(); pen.moveTo(size * 1.45, 0); pen.lineTo(-size * 0.8, size * 0.85); pen.lineTo(-size * 0.4, 0); pen.lineTo(-size * 0.8, -size * 0.85); pen.closePath();
  pen.fill(); pen.stroke(); pen.restore();
}
