// Search in a log. It looks at some thousand lines at a time, so that the page stays quick.
import { h, set, write } from './dom.js';
import { breathe } from './feed.js';
import { t } from './texts.js';

const MOST = 10_000;

export class Search {
  /** @param {import('./lines.js').Lines} lines @param {(n: number) => void} jump @param {() => void} redraw */
  constructor(lines, jump, redraw) {
    this.lines = lines;
    this.jump = jump;
    this.redraw = redraw;
    /** @type {number[]} numbers of lines with a hit */
    this.hits = [];
    this.at = -1;
    this.text = '';
    this.seen = 0;
    this.run = 0;
    this.input = h('input', { type: 'search', 'aria-label': t.log.search, placeholder: t.log.search, spellcheck: 'false', autocomplete: 'off' });
    this.count = h('span', { class: 'hits', role: 'status' });
    this.back = h('button', { type: 'button', 'aria-label': t.log.previous, title: t.log.previous, on: { click: () => this.step(-1) }, disabled: true }, '↑');
    this.forth = h('button', { type: 'button', 'aria-label': t.log.next, title: t.log.next, on: { click: () => this.step(1) }, disabled: true }, '↓');
    this.el = h('div', { class: 'search', role: 'search' }, this.input, this.back, this.forth, this.count);
    this.input.addEventListener('input', () => this.start());
    this.input.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
      if (e.key === 'Enter') {
        e.preventDefault();
        this.step(e.shiftKey ? -1 : 1);
      }
    });
  }

  clear() {
    this.hits = [];
    this.at = -1;
    this.seen = 0;
    this.run++;
    this.say();
  }

  start() {
    this.clear();
    this.text = this.input.value.toLowerCase();
    this.redraw();
    this.grown();
  }

  /** Looks at lines that are new. */
  async grown() {
    if (!this.text) return this.say();
    const run = ++this.run;
    const turn = { at: performance.now() };
    const lines = this.lines;
    let n = Math.max(this.seen, lines.first);
    for (; n < lines.first + lines.raw.length && this.hits.length < MOST; n++) {
      if (lines.text(n).toLowerCase().includes(this.text)) this.hits.push(n);
      if (n % 512 === 0) {
        this.seen = n + 1;
        await breathe(turn);
        if (run !== this.run) return;
      }
    }
    this.seen = n;
    this.say();
  }

  say() {
    const n = this.hits.length;
    const place = this.hits.indexOf(this.at);
    write(this.count, !this.text ? '' : !n ? t.log.noHits : place < 0 ? t.log.hits(n, n >= MOST) : t.log.hit(place + 1, n, n >= MOST));
    set(this.back, { disabled: n === 0 });
    set(this.forth, { disabled: n === 0 });
  }

  /** @param {number} by */
  step(by) {
    const n = this.hits.length;
    if (!n) return;
    const place = this.hits.indexOf(this.at);
    this.at = this.hits[place < 0 ? (by > 0 ? 0 : n - 1) : (place + by + n) % n];
    this.say();
    this.jump(this.at);
  }

  /** Adds a text to an element, with its hits marked. @param {Element} into @param {string} text @param {string} look */
  paint(into, text, look) {
    const target = look ? h('span', { class: look }) : into;
    let from = 0;
    if (this.text) {
      const low = text.toLowerCase();
      for (let at = low.indexOf(this.text); at >= 0 && low.length === text.length; at = low.indexOf(this.text, from)) {
        target.append(text.slice(from, at), h('mark', {}, text.slice(at, at + this.text.length)));
        from = at + this.text.length;
      }
    }
    target.append(text.slice(from));
    if (target !== into) into.append(target);
  }
}
