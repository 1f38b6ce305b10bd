// The page of one model: what the service says of every frame, charts, what-if, a change of f.

import { ago, lines, lorenz, number } from "./charts.js";

const byId = (id) => document.getElementById(id);
const MODEL = document.body.dataset.model;
const KEYS = document.body.dataset.keys === "yes";
const BASE = `v1/models/${encodeURIComponent(MODEL)}`;
const MOST_POINTS = 900;
const PATIENCE = 4000; // milliseconds without a stream before the page says so
const points = []; // of the history, then of the frames
const shown = {}; // the HTML of each part
let frame = null;
let answer = null;
let wanted = ""; // the objective that is to be confirmed

/** An answer of the service; an Error with its sentence where it refuses. */
async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Error("The service does not answer; try again.");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) {
    const refused = new Error(body.message ?? `The service answers ${response.status}.`);
    refused.status = response.status;
    throw refused;
  }
  return body;
}

function post(path, body) {
  const headers = { "content-type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body) });
}

/** The rows of a table; the first cell of each is its head. */
function fill(table, rows, words = []) {
  const elements = rows.map((row) => {
    const tr = document.createElement("tr");
    row.forEach((text, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (!i) cell.scope = "row";
      if (words.includes(i)) cell.className = "words";
      cell.textContent = text;
      tr.append(cell);
    });
    return tr;
  });
  table.tBodies[0].replaceChildren(...elements);
}

function say(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

const percent = (share) => `${number(Number((100 * share).toFixed(1)))} %`;

// --- charts --------------------------------------------------------------------------------------

function span(values) {
  const known = values.filter((x) => Number.isFinite(x));
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}

/** Points of the current f after the first few, whose averages jump. */
function settled() {
  const { t, version } = points[points.length - 1];
  const rest = points.filter((point) => point.t >= t / 20 && point.version === version);
  return rest.length > 1 ? rest : points;
}

/** When f was changed. */
function turns() {
  return points.filter((point, i) => i && point.version !== points[i - 1].version).map(({ clock }) => clock);
}

/** A reward over time, with the line of its limit. */
function drawReward(plot) {
  const { reward, per, level, side } = plot.dataset;
  const [unit, scale] = per ? [" %", 100] : ["", 1];
  const of = ({ average }) => {
    const y = per ? average?.[reward] / average?.[per] : average?.[reward];
    return Number.isFinite(y) ? scale * y : null;
  };
  const limit = level === undefined ? null : { y: scale * Number(level), side };
  const now = of(points[points.length - 1]);
  lines(plot, {
    label: `${reward}${per ? ` per ${per}` : ""} over time, now ${number(now)}${unit}${limit ? `, to be ${side} ${number(limit.y)}${unit}` : ""}`,
    series: [{ points: points.map((point) => [point.clock, of(point)]), look: "a" }],
    range: span([...settled().map(of), ...(limit ? [limit.y] : [])]),
    limit, unit, marks: turns(), height: limit ? 150 : 190,
  });
}

/** f and the best. The guarantee is drawn only where it is near: else it would squeeze the rest. */
function drawValue() {
  const last = points[points.length - 1];
  const of = (name) => points.map((point) => [point.clock, point[name] ?? null]);
  const [low, high] = span(settled().flatMap(({ value, about }) => [value, about ?? NaN]));
  const room = Math.max(high - low, 0.01 * Math.abs(high));
  const near = [last.low, last.high].map((x) => Math.min(Math.max(x ?? NaN, low - room), high + room));
  const ceiling = last.at_most !== null && last.at_most - high <= 2 * room;
  lines(byId("c-value").querySelector(".plot"), {
    label: `f is ${number(last.value)}; the best that can be reached is about ${number(last.about)}, at most ${number(last.at_most)}`,
    series: [
      ...(ceiling ? [{ points: of("at_most"), look: "c" }] : []),
      { points: of("about"), look: "b" },
      { points: of("value"), look: "a" },
    ],
    band: points.map((point) => [point.clock, point.low ?? null, point.high ?? null]),
    range: span([low, high, ...near, ...(ceiling ? [last.at_most] : [])]),
    marks: turns(),
  });
  byId("ceiling").hidden = !ceiling;
  byId("turned").hidden = !turns().length;
}

function drawShares() {
  const curves = [{ points: frame.exposure.lorenz, look: "a" }];
  if (frame.earlier) curves.unshift({ points: frame.earlier.lorenz, look: "b" });
  lorenz(byId("c-lorenz").querySelector(".plot"), { label: `Lorenz curve of exposure. ${frame.exposure.words}`, curves });
  byId("earlier").hidden = !frame.earlier;
  if (frame.earlier) say("earlier", `${ago(frame.earlier.seconds_ago)} ago`);
}

function draw() {
  if (!points.length) return;
  document.querySelectorAll("[data-reward]").forEach(drawReward);
  if (byId("d-proof").open) drawValue();
  if (frame?.exposure) drawShares();
}

// --- frames --------------------------------------------------------------------------------------

function show(next) {
  const before = frame;
  frame = next;
  if (points.length && points[points.length - 1].clock > frame.clock + 1) {
    points.length = 0; // another log: its own history
    remember().catch(() => {});
  }
  for (const [id, html] of Object.entries(frame.parts)) { // escaped by the service
    if (shown[id] !== html) byId(id).innerHTML = html;
    shown[id] = html;
  }
  const { clock, t, value, average, version, live } = frame;
  const { about = null, low = null, high = null, at_most = null } = live;
  points.push({ clock, t, value, average, version, about, low, high, at_most });
  if (points.length > MOST_POINTS) {
    points.splice(0, points.length, ...points.filter((_, i) => i % 2 || i > MOST_POINTS / 2));
  }
  if (!before || before.version !== frame.version) changes();
  draw();
}

async function remember() {
  const { points: kept } = await ask(`${BASE}/history?most=300`);
  points.unshift(...kept.filter((point) => !points.length || point.clock < points[0].clock));
  draw();
}

async function changes() {
  const { changes: made } = await ask(`${BASE}/changes`).catch(() => ({ changes: null }));
  if (!made) return; // the next frame shows whether the service answers
  byId("unchanged").hidden = made.length > 0;
  byId("changes").hidden = !made.length;
  fill(byId("t-changes"), made.map((line) => [
    String(line.version), new Date(1000 * line.when).toISOString().slice(0, 19).replace("T", " "),
    line.who || "–", line.from_words ?? "–", line.to_words,
  ]), [1, 2, 3, 4]);
}

function state(text, look) {
  byId("state").className = `state ${look}`;
  say("state", text);
  const lost = look === "off";
  document.body.classList.toggle("stale", lost);
  byId("lost").hidden = !lost;
  if (!lost) return;
  const when = frame ? ` These are the numbers of ${new Date(1000 * frame.wall).toLocaleTimeString()}.` : "";
  say("lost", `The service does not answer; it may be starting again.${when} The page goes on by itself as soon as it is back.`);
}

let lost = 0; // a timer: streams end now and then, and begin again

function listen(wait = 1000) {
  const stream = new EventSource(`${BASE}/stream`);
  stream.onmessage = (event) => {
    wait = 1000;
    clearTimeout(lost);
    lost = 0;
    state("live", "on");
    show(JSON.parse(event.data));
  };
  stream.onerror = async () => {
    lost ||= setTimeout(() => state("not connected", "off"), PATIENCE);
    if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    stream.close();
    try {
      await ask(BASE);
    } catch (refused) {
      if (refused.status === 401 || refused.status === 403) {
        location.reload(); // to the sign-in
        return;
      }
    }
    setTimeout(() => listen(Math.min(2 * wait, 15000)), wait);
  };
}

// --- what if -------------------------------------------------------------------------------------

const pause = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });
const place = () => answer.points[Number(byId("choice").value)];
const current = () => answer.points.find((point) => point.objective === frame?.objective && point.average);

const sharers = (point) => (point.shared === undefined ? "items" : answer.sharers);

function tell(text, trouble = false) {
  say("asked", text);
  byId("asked").className = trouble ? "trouble" : "soft";
}

/** Ask, wait with a bar, show the answer; beta: the one to choose of it. Whether there is one. */
async function whatIf(body, beta = null) {
  const buttons = document.querySelectorAll("#ask-text button, #q-start, #all, #q-use");
  const bar = byId("progress");
  for (const button of buttons) button.disabled = true;
  bar.hidden = false;
  bar.removeAttribute("value");
  tell("Computing …");
  let done = false;
  try {
    let question = await post(`${BASE}/what-if`, body);
    while (question.state === "running") {
      await pause(300);
      question = await ask(`${BASE}/what-if/${question.id}`);
      [bar.max, bar.value] = [question.asked, question.points.length];
      tell(`Computing: ${question.points.length} of ${question.asked} …`);
    }
    if (question.message) throw new Error(question.message);
    showAnswer(question, beta);
    tell(`By today's estimates, for the last ${question.contexts} visits: not guaranteed.`);
    done = true;
  } catch (refused) {
    tell(refused.message, true);
  }
  bar.hidden = true;
  for (const button of buttons) button.disabled = false;
  return done;
}

function drawFrontier() {
  byId("balance").hidden = !answer || answer.curve.length < 2;
  if (byId("balance").hidden) return;
  const good = answer.points.filter((point) => point.utility !== undefined);
  const at = (point) => [point.utility, 100 * point.shared];
  const curve = answer.curve.map(([utility, , , half]) => [utility, 100 * half]);
  const dots = [[current(), "now"], [place(), "look-a"]];
  lines(byId("c-frontier").querySelector(".plot"), {
    label: `The best that can be reached: ${good.map((point) => `${number(point.utility)} ${answer.reward} with ${percent(point.shared)} for the least shown half`).join("; ")}`,
    series: [{ points: curve, look: "a" }],
    dots: dots.filter(([point]) => point?.utility !== undefined).map(([point, look]) => [...at(point), look]),
    range: span(curve.map(([, y]) => y)),
    over: `${answer.reward} a visit`,
    height: 260,
  });
}

/** Who gains or who loses, as a sentence. */
function moves(word, list = []) {
  const parts = list.map(([name, from, to]) => `${name} (${number(from)} → ${number(to)})`);
  return parts.length ? `${word}: ${parts.join(", ")} exposures a visit.` : "";
}

function preview() {
  const [now, then] = [current(), place()];
  const name = then.beta === null ? then.description : `Fairness weighs ${number(then.beta)} (beta)`;
  say("chosen", `${name}${then === now ? ", as now" : ""}`);
  byId("choice").setAttribute("aria-valuetext", byId("chosen").textContent);
  byId("apply").disabled = then.objective === frame?.objective || !then.average;
  say("impossible", then.message ? `${then.message[0].toUpperCase()}${then.message.slice(1)}.` : "");
  const rows = Object.keys(then.average ?? {}).map((reward) => {
    const [a, b] = [now?.average[reward], then.average[reward]];
    const change = a ? (100 * (b - a)) / Math.abs(a) : null;
    const words = change === null ? "–" : Math.abs(change) < 0.05 ? "none" : `${change > 0 ? "+" : "−"}${number(Math.abs(Number(change.toFixed(1))))} %`;
    return [`${reward} a visit`, number(a), number(b), words];
  });
  const half = (point) => point?.shared ?? point?.least_half;
  if (Number.isFinite(half(then))) {
    const change = now ? 100 * (half(then) - half(now)) : null;
    const words = change === null ? "–" : Math.abs(change) < 0.05 ? "none" : `${change > 0 ? "+" : "−"}${number(Math.abs(Number(change.toFixed(1))))} points`;
    rows.push([`exposure of the least shown half of the ${sharers(then)}`, now ? percent(half(now)) : "–", percent(half(then)), words]);
  }
  fill(byId("t-preview"), rows);
  byId("t-preview").hidden = !rows.length;
  say("gains", moves("Gain most", then.gains));
  say("losses", moves("Lose most", then.losses));
  drawFrontier();
}

function showAnswer(question, beta) {
  answer = question;
  const slider = byId("choice");
  slider.max = question.points.length - 1;
  const find = (test) => question.points.findIndex(test);
  const now = find((point) => point.objective === question.current);
  const other = find((point) => point.objective !== question.current);
  const asked = beta === null ? -1 : find((point) => Math.abs(point.beta - beta) < 1e-9);
  slider.value = [asked, question.curve.length > 1 ? now : other, now].find((i) => i >= 0);
  say("frontier-words", `Exposure of the least shown half of the ${question.sharers}, in percent`);
  byId("answer").hidden = false;
  preview();
}

// --- which beta ----------------------------------------------------------------------------------

const given = []; // answers
let estimate = null; // a beta

async function interview() {
  let reply;
  try {
    reply = await post(`${BASE}/what-if/${answer.id}/questions`, { answers: given });
  } catch (refused) {
    tell(refused.message, true);
    return;
  }
  const { question, done, sentences, beta } = reply;
  byId("interview").hidden = false;
  byId("q-answers").hidden = done;
  byId("q-equal").hidden = done;
  byId("q-back").disabled = !given.length;
  byId("q-use").hidden = !done;
  say("q-number", done ? "Your balance" : `Question ${question.number} of 8`);
  say("q-said", given.length ? sentences.join(" ").replaceAll("of the items", `of the ${answer.sharers}`) : "");
  if (done) {
    estimate = Number(beta.toPrecision(3));
    return;
  }
  const [first, second] = question.sentence.replace(/\?$/, "").split(", or ");
  say("q-a", first);
  say("q-b", second.replace(/%$/, `% of exposure for the least exposed half of the ${answer.sharers}`));
}

for (const word of ["a", "b", "equal"]) {
  byId(`q-${word}`).addEventListener("click", () => { given.push(word); interview(); });
}
byId("q-back").addEventListener("click", () => { given.pop(); interview(); });
byId("q-use").addEventListener("click", async () => {
  const betas = answer.points.map((point) => point.beta).concat(estimate);
  if (await whatIf({ beta: betas }, estimate)) byId("interview").hidden = true;
});
byId("q-start").addEventListener("click", async () => {
  given.length = 0;
  if (!await whatIf({})) return;
  byId("answer").hidden = true; // the questions first
  interview();
});
byId("all").addEventListener("click", async () => {
  byId("interview").hidden = true;
  await whatIf({});
});
byId("choice").addEventListener("input", preview);

byId("ask-text").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("interview").hidden = true;
  const text = byId("text").value.trim();
  whatIf({ objectives: [...new Set([frame?.objective ?? text, text])] });
});

// --- a change of f -------------------------------------------------------------------------------

byId("apply").addEventListener("click", () => {
  const point = place();
  wanted = point.objective;
  say("c-to", point.description);
  say("c-from", byId("objective").textContent);
  say("refused", "");
  byId("confirm").dataset.version = frame.version;
  byId("confirm").showModal();
});

byId("no").addEventListener("click", () => byId("confirm").close());
byId("confirm").addEventListener("close", () => { byId("admin").value = ""; });

byId("c-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const headers = { "content-type": "application/json", "if-match": `"${byId("confirm").dataset.version}"` };
  const key = byId("admin").value.trim();
  if (KEYS && !key) {
    say("refused", "No key is given; changing the objective needs one that may (admin).");
    return;
  }
  if (KEYS) headers.authorization = `Bearer ${key}`;
  byId("yes").disabled = true;
  try {
    const body = JSON.stringify({ objective: wanted });
    const { version } = await ask(`${BASE}/objective`, { method: "PUT", headers, body });
    byId("confirm").close();
    tell(`Applied: version ${version}. The next decisions follow it.`);
    await changes();
  } catch (refused) {
    say("refused", `${refused.message}${/[.!]$/.test(refused.message) ? "" : "."} Nothing was changed.`);
  }
  byId("yes").disabled = false;
});

// --- begin ---------------------------------------------------------------------------------------

byId("d-proof").addEventListener("toggle", draw);
let width = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (width !== document.documentElement.clientWidth) {
    width = document.documentElement.clientWidth;
    draw();
    if (answer) drawFrontier();
  }
});
remember().catch((refused) => state(refused.message, "off")).finally(() => listen());
