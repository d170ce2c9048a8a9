// Colours of terminals in lines of logs. Everything else that controls a terminal is left out.

// A control sequence, an operating system command, another escape, or a control character that is no tab.
// eslint-disable-next-line no-control-regex
const CONTROL = /\x1b\[([0-9;:]*)([ -/]*[@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?|[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;

/** @typedef {{fg: number, bg: number, bold: boolean, dim: boolean, italic: boolean, under: boolean}} Style */

/** @type {Style} */
export const PLAIN = Object.freeze({ fg: -1, bg: -1, bold: false, dim: false, italic: false, under: false });

/** The text that a terminal would show: of a line that overwrites itself, the last part. @param {string} raw */
function shown(raw) {
  const text = raw.replace(/[\r\n]+$/, '');
  const at = text.lastIndexOf('\r');
  return at < 0 ? text : text.slice(at + 1);
}

/** The text of a line without colours. @param {string} raw */
export function strip(raw) {
  const text = shown(raw);
  return hasControl(text) ? text.replace(CONTROL, '') : text;
}

// eslint-disable-next-line no-control-regex
const hasControl = (/** @type {string} */ s) => /[\x00-\x08\x0a-\x1f\x7f-\x9f]/.test(s);

/**
 * Splits a line into parts of one style each.
 * @param {string} raw
 * @param {Style} start the style at the end of the line before
 * @returns {{parts: {text: string, style: Style}[], end: Style}}
 */
export function parse(raw, start = PLAIN) {
  const text = shown(raw);
  if (!hasControl(text)) return { parts: text ? [{ text, style: start }] : [], end: start };
  const parts = [];
  let style = start, from = 0;
  for (const m of text.matchAll(CONTROL)) {
    if (m.index > from) parts.push({ text: text.slice(from, m.index), style });
    from = m.index + m[0].length;
    if (m[2] === 'm') style = select(style, m[1]);
  }
  if (from < text.length) parts.push({ text: text.slice(from), style });
  return { parts, end: same(style, PLAIN) ? PLAIN : style };
}

/** @param {Style} a @param {Style} b */
const same = (a, b) => a.fg === b.fg && a.bg === b.bg && a.bold === b.bold && a.dim === b.dim && a.italic === b.italic && a.under === b.under;

/** @param {Style} style @param {string} codes */
function select(style, codes) {
  const next = { ...style };
  const n = codes.split(/[;:]/).slice(0, 32).map(Number);
  for (let i = 0; i < n.length; i++) {
    const c = n[i];
    if (c === 0) Object.assign(next, PLAIN);
    else if (c === 1) next.bold = true;
    else if (c === 2) next.dim = true;
    else if (c === 3) next.italic = true;
    else if (c === 4) next.under = true;
    else if (c === 22) next.bold = next.dim = false;
    else if (c === 23) next.italic = false;
    else if (c === 24) next.under = false;
    else if (c >= 30 && c <= 37) next.fg = c - 30;
    else if (c >= 90 && c <= 97) next.fg = c - 82;
    else if (c === 39) next.fg = -1;
    else if (c >= 40 && c <= 47) next.bg = c - 40;
    else if (c >= 100 && c <= 107) next.bg = c - 100;
    else if (c === 49) next.bg = -1;
    else if (c === 38 || c === 48) {
      let colour = -1;
      if (n[i + 1] === 5) {
        colour = nearest(...indexed(n[i + 2] || 0));
        i += 2;
      } else if (n[i + 1] === 2) {
        colour = nearest(n[i + 2] || 0, n[i + 3] || 0, n[i + 4] || 0);
        i += 4;
      }
      if (c === 38) next.fg = colour;
      else next.bg = colour % 8;
    }
  }
  return next;
}

// The sixteen colours of terminals. The style sheet draws them so that they can be read; other colours become the nearest of them.
const BASE = [
  [0, 0, 0], [205, 0, 0], [0, 205, 0], [205, 205, 0], [0, 0, 238], [205, 0, 205], [0, 205, 205], [229, 229, 229],
  [127, 127, 127], [255, 0, 0], [0, 255, 0], [255, 255, 0], [92, 92, 255], [255, 0, 255], [0, 255, 255], [255, 255, 255],
];

/** @param {number} n @returns {[number, number, number]} */
function indexed(n) {
  if (n < 16) return /** @type {any} */ (BASE[Math.max(0, n)]);
  if (n >= 232) {
    const v = 8 + 10 * (Math.min(n, 255) - 232);
    return [v, v, v];
  }
  const level = (/** @type {number} */ v) => v ? 55 + 40 * v : 0;
  return [level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6)];
}

/** @param {number} r @param {number} g @param {number} b */
function nearest(r, g, b) {
  let best = 0, least = Infinity;
  BASE.forEach((c, i) => {
    const d = (c[0] - r) ** 2 + (c[1] - g) ** 2 + (c[2] - b) ** 2;
    if (d < least) [best, least] = [i, d];
  });
  return best;
}

/** The classes of a style. @param {Style} s */
export function classes(s) {
  if (s === PLAIN) return '';
  const all = [];
  if (s.fg >= 0) all.push('fg' + s.fg);
  if (s.bg >= 0) all.push('bg' + s.bg);
  if (s.bold) all.push('bold');
  if (s.dim) all.push('dim');
  if (s.italic) all.push('italic');
  if (s.under) all.push('under');
  return all.join(' ');
}
