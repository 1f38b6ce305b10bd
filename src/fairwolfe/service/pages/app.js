// The page of one model: frames from the stream, history, what-if, and a change of f.

import { ago, bar, lines, lorenz, number } from "./charts.js";

const byId = (id) => document.getElementById(id);
const MODEL = document.body.dataset.model;
const KEYS = document.body.dataset.keys === "yes";
const BASE = `v1/models/${encodeURIComponent(MODEL)}`;
const MOST_POINTS = 900;
const PATIENCE = 4000; // milliseconds without a stream before the page says so
const points = []; // of the history, then of the frames
let frame = null;
let earlier = null;
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

// --- what is seen --------------------------------------------------------------------------------

function span(values) {
  const known = values.filter((x) => x !== null && x !== undefined && Number.isFinite(x));
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

function drawValue() {
  const last = points[points.length - 1];
  const of = (name) => points.map((point) => [point.clock, point[name]]);
  const band = points.map(({ clock, low, high }) => [clock, low ?? null, high ?? null]);
  const range = span([...settled().map((point) => point.value), last.low, last.high, last.at_most]);
  lines(byId("c-value"), {
    label: `f is ${number(last.value)}; the best that can be reached is about ${number(last.about)}, at most ${number(last.at_most)}`,
    series: [
      { points: of("at_most"), look: "c" },
      { points: of("about"), look: "b" },
      { points: of("value"), look: "a" },
    ],
    band: band.map(([x, a, b]) => (a === null || b === null ? [x, null, null] : [x, a, b])),
    range,
    marks: turns(),
  });
  byId("turned").hidden = !turns().length;
  const rows = [];
  const size = Math.max(1, Math.ceil(points.length / 12));
  for (let i = points.length - 1; i >= 0; i -= size) {
    const { clock, t, value, about, low, high, at_most: most, gini } = points[i];
    const interval = low === null || low === undefined ? "–" : `${number(low)} to ${number(high)}`;
    const row = [ago(last.clock - clock), number(t), number(value), number(about), interval, number(most)];
    rows.push(frame?.exposure ? [...row, number(gini)] : row);
  }
  fill(byId("t-history"), rows);
}

function drawRewards() {
  const place = byId("c-rewards");
  const last = points[points.length - 1];
  const names = Object.keys(last.average);
  if (place.childElementCount !== names.length) {
    place.replaceChildren(...names.map((name) => {
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      const plot = document.createElement("div");
      [caption.textContent, plot.className] = [name, "plot"];
      figure.append(caption, plot);
      return figure;
    }));
  }
  names.forEach((name, i) => {
    lines(place.children[i], {
      label: `${name} over time, now ${number(last.average[name])}`,
      series: [{ points: points.map((point) => [point.clock, point.average?.[name] ?? null]), look: "a" }],
      range: span(settled().map((point) => point.average?.[name])),
    });
  });
}

function drawExposure() {
  const shown = frame.exposure;
  const curves = [{ points: shown.lorenz, look: "a" }];
  if (earlier) curves.unshift({ points: earlier.lorenz, look: "b" });
  lorenz(byId("c-lorenz"), { label: `Lorenz curve of exposure. ${shown.words}`, curves });
  byId("earlier").hidden = !earlier;
  if (earlier) say("earlier", `${ago(earlier.seconds_ago + frame.clock - earlier.clock)} ago`);
  const percent = (curve, part) => {
    if (!curve?.length) return "–";
    return `${number(100 * curve[Math.round(part * (curve.length - 1))])} %`;
  };
  const rows = [];
  for (let part = 1; part <= 10; part += 1) {
    rows.push([`${10 * part} %`, percent(shown.lorenz, part / 10), percent(earlier?.lorenz, part / 10)]);
  }
  fill(byId("t-lorenz"), rows);
}

function draw() {
  if (!points.length) return;
  drawValue();
  drawRewards();
  if (!frame) return;
  if (frame.exposure) drawExposure();
  bar(byId("c-counts"), {
    label: `${number(frame.joined)} joined, ${number(frame.expired)} expired, ${number(frame.open)} open, ${number(frame.late)} late reports`,
    parts: ["joined", "expired", "open", "late"].map((look) => ({ look, value: frame[look] })),
  });
}

function show(next) {
  const before = frame;
  frame = next;
  if (points.length && points[points.length - 1].clock > frame.clock + 1) {
    points.length = 0; // another log: its own history
    remember().catch(() => {});
  }
  if (earlier && frame.clock - earlier.clock > 600) remind().catch(() => {});
  const { live, tables } = frame;
  say("sentence", live.sentence);
  say("objective", frame.description);
  say("version", String(frame.version));
  say("stopped", frame.stopped ?? "");
  for (const [name, rows] of Object.entries(tables)) fill(byId(`t-${name}`), rows);
  byId("constraints").hidden = !frame.constraints.length;
  for (const id of ["exposure", "ends"]) byId(id).hidden = !frame.exposure;
  if (frame.exposure) say("words", frame.exposure.words);
  byId("groups").hidden = !tables.groups;
  const { clock, t, value, average, version } = frame;
  const { about = null, low = null, high = null, at_most = null } = live;
  points.push({ clock, t, value, average, version, about, low, high, at_most, gini: frame.exposure?.gini });
  if (points.length > MOST_POINTS) {
    points.splice(0, points.length, ...points.filter((_, i) => i % 2 || i > MOST_POINTS / 2));
  }
  if (!before || before.version !== frame.version) changes();
  draw();
}

async function remember() {
  const { points: kept } = await ask(`${BASE}/history?most=300`);
  points.unshift(...kept.filter((point) => !points.length || point.clock < points[0].clock));
  if (!byId("exposure").hidden) await remind();
  draw();
}

async function remind() {
  const shown = await ask(`${BASE}/exposure`);
  const clock = points.length ? points[points.length - 1].clock : 0;
  earlier = shown.earlier && { ...shown.earlier, clock };
}

async function changes() {
  const { changes: lines_ } = await ask(`${BASE}/changes`).catch(() => ({ changes: null }));
  if (!lines_) return; // the next frame shows whether the service answers
  byId("unchanged").hidden = lines_.length > 0;
  byId("changes").hidden = !lines_.length;
  fill(byId("t-changes"), lines_.map((line) => [
    String(line.version), new Date(1000 * line.when).toISOString().slice(0, 19).replace("T", " "),
    line.who || "–", line.from_words ?? "–", line.to_words,
  ]), [1, 2, 3, 4]);
}

// --- the stream ----------------------------------------------------------------------------------

function state(text, look) {
  byId("state").className = `state ${look}`;
  say("state", text);
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
    lost ||= setTimeout(() => state("not connected; trying again", "off"), PATIENCE);
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

function tell(text, trouble = false) {
  say("asked", text);
  byId("asked").className = trouble ? "trouble" : "soft";
}

async function whatIf(body) {
  const buttons = document.querySelectorAll("#what-if form button");
  for (const button of buttons) button.disabled = true;
  tell("Computing …");
  try {
    let question = await post(`${BASE}/what-if`, body);
    while (question.state === "running") {
      await pause(400);
      question = await ask(`${BASE}/what-if/${question.id}`);
      tell(`Computing: ${question.points.length} of ${question.asked} …`);
    }
    if (question.message) throw new Error(question.message);
    showAnswer(question);
    tell(`By today's estimates of the last ${question.contexts} contexts seen, not guaranteed.`);
  } catch (refused) {
    tell(refused.message, true);
  }
  for (const button of buttons) button.disabled = false;
}

/** Names of the answers: their betas, or their numbers where they have none. */
function named(point, i) {
  return point.beta === null ? `objective ${i + 1}` : `beta ${number(point.beta)}`;
}

function drawAnswer() {
  if (!answer) return;
  const good = answer.points.filter((point) => point.average);
  const betas = good.every((point) => point.beta !== null);
  const chosen = answer.points[Number(byId("choice").value)];
  const over = betas ? "beta, one step for each value" : "objectives, in the order given";
  const labels = good.map((point, i) => (betas ? number(point.beta) : String(i + 1)));
  const marks = chosen.average ? [good.indexOf(chosen)] : [];
  const names = good.length ? Object.keys(good[0].average) : [];
  const several = names.length > 1 ? "abc" : "a";
  const series = names.map((name, k) => ({
    name, look: several[k % several.length], marked: true, points: good.map((point, i) => [i, point.average[name]]),
  }));
  const figure = byId("c-earned");
  lines(figure, {
    label: `What is earned: ${good.map((point, i) => `${named(point, i)}: ${names.map((name) => `${name} ${number(point.average[name])}`).join(", ")}`).join("; ")}`,
    series, range: span(series.flatMap((one) => one.points.map(([, y]) => y))), over, marks, labels,
  });
  figure.querySelector(".legend").replaceChildren(...series.map(({ name, look }) => {
    const li = document.createElement("li");
    [li.className, li.textContent] = [`look-${look}`, name];
    return li;
  }));
  const halves = good.map((point, i) => [i, point.least_half === undefined ? null : 100 * point.least_half]);
  byId("c-half").hidden = halves.every(([, y]) => y === null);
  if (byId("c-half").hidden) return;
  lines(byId("c-half"), {
    label: `Exposure of the least shown half of the items: ${good.map((point, i) => `${named(point, i)}: ${number(halves[i][1])} %`).join("; ")}`,
    series: [{ look: "a", marked: true, points: halves }], range: span(halves.map(([, y]) => y)), over, marks, labels,
  });
}

/** The answer for the current f, to compare others with. */
function current() {
  return answer.points.find((point) => point.objective === frame?.objective && point.average);
}

function describe() {
  const i = Number(byId("choice").value);
  const point = answer.points[i];
  const name = named(point, i);
  byId("choice").setAttribute("aria-valuetext", name);
  byId("apply").disabled = point.objective === frame?.objective || !point.average;
  if (!point.average) {
    say("chosen", `${name}: ${point.message}`);
    return;
  }
  const now = current();
  const parts = Object.entries(point.average).map(([reward, earned]) => {
    const base = now?.average[reward];
    const change = base && now !== point ? ` (${earned >= base ? "+" : "−"}${number(Math.abs(Math.round((1000 * (earned - base)) / base) / 10))} %)` : "";
    return `${reward} ${number(earned)}${change}`;
  });
  if (point.least_half !== undefined && point.least_half !== null) {
    parts.push(`the least shown half of the items gets ${number(Math.round(1000 * point.least_half) / 10)} % of the exposure`);
  }
  const note = point.message ? ` ${point.message}.` : "";
  say("chosen", `${name}${now === point ? ", as now" : ""}: ${parts.join("; ")}.${note}`);
}

function showAnswer(question) {
  answer = question;
  const rewards = Object.keys(question.points.find((point) => point.average)?.average ?? {});
  const ranks = question.points.some((point) => point.gini !== undefined);
  const head = document.createElement("tr");
  for (const name of ["", "f", ...rewards, ...(ranks ? ["least shown half", "Gini index"] : []), ""]) {
    const th = document.createElement(name ? "th" : "td");
    if (name) th.scope = "col";
    th.textContent = name;
    head.append(th);
  }
  byId("t-answers").tHead.replaceChildren(head);
  fill(byId("t-answers"), question.points.map((point, i) => [
    named(point, i), number(point.value), ...rewards.map((name) => number(point.average?.[name])),
    ...(ranks ? [point.least_half === undefined ? "–" : `${number(100 * point.least_half)} %`, number(point.gini)] : []),
    point.message ?? (point.objective === frame?.objective ? "now" : ""),
  ]));
  const slider = byId("choice");
  slider.max = question.points.length - 1;
  const fresh = question.points.findIndex((point) => point.objective !== frame?.objective);
  const now = question.points.findIndex((point) => point.objective === frame?.objective);
  slider.value = question.points.length > 2 && now >= 0 ? now : Math.max(fresh, 0);
  byId("slide").hidden = question.points.length < 2;
  byId("interview").hidden = !question.questions;
  byId("interview").open = false;
  given.length = 0;
  byId("answer").hidden = false;
  describe();
  drawAnswer();
}

// --- which beta ----------------------------------------------------------------------------------

const given = []; // answers
let estimate = null; // a beta

async function interview() {
  let reply;
  try {
    reply = await post(`${BASE}/what-if/${answer.id}/questions`, { answers: given });
  } catch (refused) {
    say("q-number", refused.message);
    return;
  }
  const { question, done, sentences, beta } = reply;
  byId("q-answers").hidden = done;
  byId("q-back").disabled = !given.length;
  byId("q-use").hidden = !done;
  say("q-number", done ? "" : `Question ${question.number} of 8`);
  say("q-said", given.length ? sentences.join(" ") : "");
  if (done) {
    estimate = Number(beta.toPrecision(3));
    return;
  }
  const [first, second] = question.sentence.replace(/\?$/, "").split(", or ");
  say("q-a", first);
  say("q-b", second.replace(/%$/, "% of exposure for the least exposed half of the items"));
}

for (const word of ["a", "b", "equal"]) {
  byId(`q-${word}`).addEventListener("click", () => { given.push(word); interview(); });
}
byId("q-back").addEventListener("click", () => { given.pop(); interview(); });
byId("q-use").addEventListener("click", () => whatIf({ beta: [estimate] }));
byId("interview").addEventListener("toggle", () => { if (byId("interview").open) interview(); });

byId("choice").addEventListener("input", () => { describe(); drawAnswer(); });

byId("ask-beta").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = byId("beta").value.split(/[\s,;]+/).filter(Boolean);
  const wrong = words.find((word) => !(Number.isFinite(Number(word)) && Number(word) >= 0));
  if (wrong !== undefined) {
    tell(`beta is “${wrong}”; give numbers of at least 0, such as 0.5, 1, 2`, true);
    return;
  }
  whatIf({ beta: words.map(Number) });
});

byId("ask-text").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  const both = [...new Set([frame?.objective ?? text, text])];
  whatIf({ objectives: both });
});

// --- a change of f -------------------------------------------------------------------------------

byId("apply").addEventListener("click", () => {
  const point = answer.points[Number(byId("choice").value)];
  wanted = point.objective;
  say("c-to", point.description);
  say("c-from", byId("objective").textContent);
  say("refused", "");
  byId("confirm").dataset.version = frame ? frame.version : byId("version").textContent;
  byId("confirm").showModal();
});

byId("no").addEventListener("click", () => byId("confirm").close());
byId("confirm").addEventListener("close", () => { byId("admin").value = ""; });

byId("c-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const headers = { "content-type": "application/json", "if-match": `"${byId("confirm").dataset.version}"` };
  const key = byId("admin").value.trim();
  if (KEYS && !key) {
    say("refused", "No key is given; changing f needs one that may (admin).");
    return;
  }
  if (KEYS) headers.authorization = `Bearer ${key}`;
  byId("yes").disabled = true;
  try {
    const body = JSON.stringify({ objective: wanted });
    const { version } = await ask(`${BASE}/objective`, { method: "PUT", headers, body });
    byId("confirm").close();
    tell(`f is changed: version ${version}. The next decisions follow it.`);
    await changes();
  } catch (refused) {
    say("refused", `${refused.message}${/[.!]$/.test(refused.message) ? "" : "."} Nothing was changed.`);
  }
  byId("yes").disabled = false;
});

// --- begin ---------------------------------------------------------------------------------------

let width = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (width !== document.documentElement.clientWidth) {
    width = document.documentElement.clientWidth;
    draw();
    drawAnswer();
  }
});
remember().catch((refused) => state(refused.message, "off")).finally(() => listen());
