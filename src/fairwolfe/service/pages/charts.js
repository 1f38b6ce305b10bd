// Charts as SVG: lines with a band and a limit, Lorenz curves. No styles here: classes, see style.css.

const SPACE = "http://www.w3.org/2000/svg";
const SPANS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200,
  86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
let clips = 0;

/** A number with three significant digits, or with all before the point; a dash for none. */
export function number(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x && Math.abs(x) < 1e-6) return x.toPrecision(3);
  return x.toLocaleString("en", Math.abs(x) < 1000 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 });
}

/** A number of an axis, with as many digits as its step needs. */
function tick(x, step) {
  const digits = Math.min(Math.max(-Math.floor(Math.log10(step) + 1e-9), 0), 8);
  return (Math.abs(x) < step / 1e6 ? 0 : x).toLocaleString("en", {
    minimumFractionDigits: digits, maximumFractionDigits: digits,
  });
}

/** How long, in a word and a half. */
export function ago(seconds) {
  if (seconds < 0.5) return "now";
  for (const [size, unit, length] of [[172800, "days", 86400], [7200, "h", 3600], [120, "min", 60]]) {
    if (seconds >= size) return `${number(Math.round((10 * seconds) / length) / 10)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

function element(name, attributes = {}, text = "") {
  const one = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.textContent = text;
  return one;
}

/** A round step that divides a span into about n parts. */
function step(span, n) {
  const rough = span / n;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((one) => one * power >= rough * 0.999);
}

function steps(low, high, n) {
  const size = step(high - low, n);
  const levels = [];
  for (let k = Math.ceil(low / size - 1e-9); k * size <= high + size * 1e-9; k += 1) {
    levels.push(k * size);
  }
  return [levels, size];
}

/** Times of an axis that ends now: how many seconds ago. */
function times(span, n) {
  const size = SPANS.find((one) => span / one <= n) ?? span;
  const places = [];
  for (let k = 0; k * size <= span; k += 1) places.push(k * size);
  return places;
}

function canvas(plot, height, label) {
  const width = Math.max(Math.floor(plot.clientWidth), 220);
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label,
  });
  plot.replaceChildren(svg);
  return [svg, width];
}

function path(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/** Pieces of a series without holes. */
function pieces(points) {
  const parts = [[]];
  for (const [x, y] of points) {
    if (y === null || y === undefined || !Number.isFinite(y)) parts.push([]);
    else parts[parts.length - 1].push([x, y]);
  }
  return parts.filter((piece) => piece.length);
}

/**
 * Lines over time, which ends now, or over another axis, whose name is `over`.
 * series: {points: [[x, y]], look: "a" | "b" | "c"}; band: [[x, low, high]]; range: [low, high] of y;
 * limit: {y, side}; unit: of y; marks: places along x; dots: [[x, y, class]].
 */
export function lines(plot, { label, series, range, band = [], limit, unit = "", over, marks = [], dots, height = 150 }) {
  const [svg, width] = canvas(plot, height, label);
  const write = (x, y, look, text) => svg.append(element("text", { x, y, class: look }, text));
  const xs = series.flatMap((one) => one.points.filter(([, y]) => y !== null).map(([x]) => x));
  if (!xs.length) {
    write(width / 2, height / 2, "middle", "nothing yet");
    return;
  }
  const first = Math.min(...xs);
  const last = Math.max(...xs);
  let [low, high] = range;
  if (low === 0 && high === 0) high = 1;
  // Numbers that differ by rounding only are equal: steps between them would never end.
  if (!(high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)))) [low, high] = [low - 0.5 * (Math.abs(low) || 1), high + 0.5 * (Math.abs(high) || 1)];
  const room = 0.08 * (high - low);
  [low, high] = [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  const [levels, size] = steps(low, high, height < 200 ? 3 : 4);
  const names = levels.map((y) => `${tick(y, size)}${unit}`);
  const left = 8 + 7 * Math.max(...names.map((name) => name.length));
  const box = { left, right: width - 6, top: 8, bottom: height - (over === undefined ? 22 : 40) };
  const x = (value) => box.left + ((value - first) / (last - first || 1)) * (box.right - box.left);
  const y = (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
  levels.forEach((level, i) => {
    svg.append(element("line", { x1: box.left, x2: box.right, y1: y(level), y2: y(level), class: "grid" }));
    write(box.left - 6, y(level) + 4, "end", names[i]);
  });
  if (over === undefined) {
    for (const back of times(last - first, width < 480 ? 3 : 6)) {
      const from = x(last - back);
      write(from, height - 6, back === 0 ? "end" : from < box.left + 30 ? "" : "middle", back === 0 ? "now" : `${ago(back)} ago`);
    }
  } else {
    const [places, gap] = steps(first, last, width < 480 ? 3 : 6);
    for (const one of places) write(x(one), height - 22, x(one) > width - 30 ? "end" : "middle", tick(one, gap));
    write((box.left + box.right) / 2, height - 5, "middle", over);
  }
  clips += 1;
  const clip = element("clipPath", { id: `clip-${clips}` });
  clip.append(element("rect", { x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8, height: box.bottom - box.top + 8 }));
  const inside = element("g", { "clip-path": `url(#clip-${clips})` });
  svg.append(clip, inside);
  const draw = (name, attributes) => inside.append(element(name, attributes));
  if (limit) {
    const at = y(limit.y);
    const [top, bottom] = limit.side === "at most" ? [box.top, at] : [at, box.bottom];
    draw("rect", { x: box.left, y: top, width: box.right - box.left, height: Math.max(bottom - top, 0), class: "beyond" });
    draw("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "limit-line" });
    const beyond = limit.side === "at most" ? at - box.top > 18 : at + 18 > box.bottom;
    write(box.left + 4, beyond ? at - 5 : at + 14, "limit-words", `limit: ${limit.side} ${number(limit.y)}${unit}`);
  }
  const edge = (side) => pieces(band.map((one) => [x(one[0]), one[1] === null || one[2] === null ? null : y(one[side])]));
  const lows = edge(1);
  edge(2).forEach((piece, i) => {
    const back = lows[i].slice().reverse();
    draw("path", { d: `${path(piece)}${path(back).replace("M", "L")}Z`, class: "band" });
  });
  for (const one of series) {
    const runs = pieces(one.points.map(([a, b]) => [x(a), b === null || b === undefined ? null : y(b)]));
    for (const piece of runs) draw("path", { d: path(piece), class: `line look-${one.look}` });
    const end = runs.flat().pop();
    if (end && !dots) draw("circle", { cx: end[0], cy: end[1], r: 3, class: `dot look-${one.look}` });
  }
  for (const [a, b, look] of dots ?? []) draw("circle", { cx: x(a), cy: y(b), r: look === "now" ? 7 : 5, class: `dot ${look}` });
  for (const one of marks) draw("line", { x1: x(one), x2: x(one), y1: box.top, y2: box.bottom, class: "mark" });
}

/** Lorenz curves; curves: {points: shares of the exposure in equal parts, look}. */
export function lorenz(plot, { label, curves }) {
  const side = Math.min(Math.max(plot.clientWidth, 220), 400);
  const height = side * 0.8;
  const [svg, width] = canvas(plot, height, label);
  const box = { left: 42, right: Math.min(width, side) - 10, top: 8, bottom: height - 36 };
  const x = (share) => box.left + share * (box.right - box.left);
  const y = (share) => box.bottom - share * (box.bottom - box.top);
  const write = (at, down, look, text) => svg.append(element("text", { x: at, y: down, class: look }, text));
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(element("line", { x1: x(0), x2: x(1), y1: y(part), y2: y(part), class: "grid" }));
    write(x(0) - 6, y(part) + 4, "end", `${100 * part} %`);
    write(x(part), y(0) + 16, part === 1 ? "end" : "middle", `${100 * part} %`);
  }
  write(x(0.5), y(0) + 31, "middle", "of the items, the least shown first");
  svg.append(element("line", { x1: x(0), x2: x(1), y1: y(0), y2: y(1), class: "equal" }));
  for (const { points, look } of curves) {
    const n = points.length - 1;
    if (n < 1) continue;
    svg.append(element("path", { d: path(points.map((share, i) => [x(i / n), y(share)])), class: `line look-${look}` }));
  }
}
