// The lines of one log, in memory, with their groups.
import { PLAIN, parse, strip } from './ansi.js';

// Above this number the oldest lines are forgotten, so that a page that is open for days does not grow.
const MOST = 300_000;
const CUT = 50_000;

const GROUP = /^\s*(?:##\[group\]|::group::)(.*)$/;
export const GROUP_END = /^\s*(?:##\[endgroup\]|::endgroup::)/;
const ERROR = /\b(error|errors|fatal|panic|exception|traceback|failed|failure|fail)\b/i;
const NO_ERROR = /\b(0|no|without) (errors?|failures?|failed)\b|(errors?|failures?|failed)[:=] ?0\b/i;

export class Lines {
  constructor() {
    this.clear();
  }

  clear() {
    /** @type {string[]} texts with their colours */
    this.raw = [];
    /** @type {number[]} times in milliseconds */
    this.time = [];
    /** @type {number} number of the first line that is kept */
    this.first = 0;
    /** The number that the next line of the service has. */
    this.next = 0;
    /** @type {any[]|null} the step of each line, in the logs of a whole run */
    this.tags = null;
    this.dropped = 0;
    this.widest = 0;
    /** @type {number} number of the first line that looks like an error, or -1 */
    this.error = -1;
    this.end = PLAIN;
    /** @type {Map<number, any>} styles with which lines begin, if not plain */
    this.style = new Map();
    /** @type {{at: number, end: number, title: string, closed: boolean}[]} */
    this.groups = [];
    this.open = null;
    this.hidden = false;
    /** @type {number[]|null} the numbers of the lines that are shown, if some are hidden */
    this.shown = null;
  }

  /** How many lines are shown. */
  get count() { return this.shown ? this.shown.length : this.raw.length; }

  /** The number of the line in a row. @param {number} row */
  at(row) { return this.shown ? this.shown[row] : this.first + row; }

  /** The row of a line, or of the group that hides it. @param {number} number */
  row(number) {
    if (!this.shown) return Math.min(Math.max(number - this.first, 0), this.raw.length - 1);
    let low = 0, high = this.shown.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.shown[middle] <= number) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** @param {number} number */
  text(number) { return strip(this.raw[number - this.first] || ''); }

  /** @param {number} number */
  parts(number) { return parse(this.raw[number - this.first] || '', this.style.get(number) || PLAIN).parts; }

  /** @param {number} number */
  group(number) { return this.groups.find(g => g.at === number); }

  /**
   * Adds a line, unless it is known.
   * @param {number} pos its number in the service @param {string} out @param {number} time @param {any} [tag]
   */
  add(pos, out, time, tag) {
    if (pos < this.next) return;
    if (!this.raw.length) this.first = pos;
    this.next = pos + 1;
    const number = this.first + this.raw.length;
    this.raw.push(out);
    this.time.push(time);
    if (tag) (this.tags || (this.tags = [])).push(tag);
    if (this.end !== PLAIN) this.style.set(number, this.end);
    if (this.end !== PLAIN || out.includes('\x1b')) this.end = parse(out, this.end).end;
    this.widest = Math.max(this.widest, Math.min(out.length, LONGEST));
    if (this.error < 0 && ERROR.test(out) && !NO_ERROR.test(out)) this.error = number;
    if (out.includes('group')) this.mark(number, out);
    if (this.shown && !(this.open && this.open.closed && this.open.at !== number)) this.shown.push(number);
    if (this.raw.length > MOST) this.forget();
  }

  /** @param {number} number @param {string} out */
  mark(number, out) {
    const text = strip(out);
    const begin = GROUP.exec(text);
    if (begin) {
      if (this.open) this.open.end = number - 1;
      this.open = { at: number, end: Infinity, title: begin[1].trim() || text.trim(), closed: false };
      this.groups.push(this.open);
    } else if (this.open && GROUP_END.test(text)) {
      this.open.end = number;
      this.open = null;
    }
  }

  forget() {
    this.raw.splice(0, CUT);
    this.time.splice(0, CUT);
    if (this.tags) this.tags.splice(0, CUT);
    this.first += CUT;
    this.dropped += CUT;
    for (const n of this.style.keys()) if (n < this.first) this.style.delete(n);
    this.groups = this.groups.filter(g => g.end >= this.first);
    if (this.error >= 0 && this.error < this.first) this.error = -1;
    this.arrange();
  }

  /** Opens or closes a group. @param {any} group */
  toggle(group) {
    group.closed = !group.closed;
    this.arrange();
  }

  arrange() {
    const closed = this.groups.filter(g => g.closed);
    if (!closed.length) {
      this.shown = null;
      return;
    }
    const shown = [];
    let i = 0;
    for (let n = this.first; n < this.first + this.raw.length; n++) {
      while (i < closed.length && n > closed[i].end) i++;
      if (i < closed.length && n > closed[i].at && n <= closed[i].end) continue;
      shown.push(n);
    }
    this.shown = shown;
  }
}

/** The most characters of a line that are drawn. */
export const LONGEST = 4000;
