// The view of a log: it follows the log service, and draws only the lines that can be seen.
import { classes } from './ansi.js';
import { h, icon, set, write } from './dom.js';
import { breathe, feed } from './feed.js';
import { GROUP_END, LONGEST, Lines } from './lines.js';
import { block } from './role.js';
import { Search } from './search.js';
import { t } from './texts.js';
import { virtual } from './virtual.js';

const HEIGHT = 20;

/**
 * @param {object} o
 * @param {string} o.name for screen readers
 * @param {(line: number, of: any) => void} o.link called with the line that the address should name, and the step that has it
 */
export function logView({ name, link }) {
  const lines = new Lines();
  /** @type {import('./sources.js').Source|null} */
  let from = null;
  let marked = -1, following = true, stamps = false, wanted = -1, state = '';
  /** @type {{close: () => void}|null} */
  let reading = null;

  const view = h('div', { class: 'lines', role: 'log', 'aria-live': 'off', 'aria-label': name, tabindex: 0 });
  const empty = h('p', { class: 'log-empty' }, t.log.waiting);
  const list = virtual({ view, height: HEIGHT, count: () => lines.count, create: row });
  const status = h('span', { class: 'log-state', role: 'status' });
  const follow = toggle(t.log.follow, true, on => { following = on; if (on) list.bottom(); });
  const times = toggle(t.log.timestamps, false, on => { stamps = on; view.classList.toggle('stamped', on); list.update(); });
  const firstError = h('button', { type: 'button', on: { click: () => jump(lines.error) } }, t.log.firstError);
  block(firstError, t.log.noError);
  const download = h('a', { class: 'button', download: true }, t.log.download);
  const search = new Search(lines, n => jump(n), () => list.update());
  const bar = h('div', { class: 'log-bar', role: 'toolbar', 'aria-label': t.log.tools }, search.el, h('span', { class: 'grow' }), firstError, follow.el, times.el, download);
  const el = h('section', { class: 'log', 'aria-label': name }, bar, h('div', { class: 'log-body' }, view, empty), status);

  view.addEventListener('scroll', () => {
    const atEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - HEIGHT;
    if (following !== atEnd && state !== 'ended') {
      following = atEnd;
      follow.set(atEnd);
    }
  }, { passive: true });
  view.addEventListener('keydown', e => {
    if (e.key === 'Home') view.scrollTop = 0;
    else if (e.key === 'End') list.bottom();
    else return;
    e.preventDefault();
  });

  function row() {
    const number = h('a', { class: 'n', tabindex: -1 });
    const time = h('span', { class: 'at' });
    const text = h('span', { class: 'out' }), tag = h('span', { class: 'tag' });
    const el = h('div', { class: 'line' }, number, time, tag, text);
    let at = -1;
    number.addEventListener('click', e => {
      e.preventDefault();
      const of = lines.tags && lines.tags[at - lines.first];
      mark(at);
      link(of ? of.pos : at, of ? of.tag.node : null);
    });
    return { el, show: (/** @type {number} */ r) => {
      at = lines.at(r);
      write(number, at + 1);
      set(number, { href: '#line', 'aria-label': t.log.line(at + 1) });
      write(time, stamps ? stamp(lines.time[at - lines.first]) : '');
      write(tag, lines.tags ? lines.tags[at - lines.first].tag.text : '');
      el.classList.toggle('marked', at === marked);
      el.classList.toggle('found', at === search.at);
      draw(text, at);
    } };
  }

  /** @param {any} into @param {number} at */
  function draw(into, at) {
    into.replaceChildren();
    const group = lines.groups.length ? lines.group(at) : undefined;
    if (group) {
      into.append(h('button', { type: 'button', class: 'group', 'aria-expanded': String(!group.closed), on: { click: () => { lines.toggle(group); list.update(); } } },
        icon(group.closed ? 'M6 3l5 5-5 5' : 'M3 6l5 5 5-5'), group.title));
      return;
    }
    if (lines.groups.length && GROUP_END.test(lines.text(at))) return;
    let left = LONGEST;
    for (const p of lines.parts(at)) {
      const text = p.text.slice(0, left);
      left -= text.length;
      search.paint(into, text, classes(p.style));
      if (left <= 0) {
        into.append(h('span', { class: 'more' }, t.log.cut));
        return;
      }
    }
  }

  /** @param {number} n */
  function mark(n) {
    marked = n;
    list.update();
  }

  /** @param {number} n */
  function jump(n) {
    if (n < 0) return;
    following = false;
    follow.set(false);
    if (lines.shown) {
      const hiding = lines.groups.find(g => g.closed && n > g.at && n <= g.end);
      if (hiding) lines.toggle(hiding);
    }
    mark(n);
    list.show(lines.row(n));
  }

  function grown() {
    list.space.style.minWidth = `calc(${lines.widest + 4}ch + 13rem)`;
    empty.hidden = lines.raw.length > 0;
    block(firstError, lines.error < 0 ? t.log.noError : '');
    if (wanted >= 0 && lines.next > wanted) {
      jump(wanted);
      wanted = -1;
    }
    if (following && state !== 'ended') list.bottom();
    list.update(false);
    say();
  }

  function say() {
    const count = t.log.lines(lines.first + lines.raw.length);
    write(status, [count, lines.dropped ? t.log.dropped(lines.dropped) : '', t.log.state[state] || ''].filter(Boolean).join(' · '));
    set(status, { 'data-state': state });
    if (!lines.raw.length) write(empty, state === 'ended' ? t.log.none : state === 'failed' ? t.log.missing : t.log.waiting);
  }

  /** @param {any[]} batch */
  async function receive(batch) {
    const turn = { at: performance.now() };
    const to = from;
    for (const m of batch) {
      if (m.type !== 'message' || !to || to !== from) continue;
      to.read(m, (pos, out, time, tag) => lines.add(pos, out, time, tag), lines.next);
      if (performance.now() - turn.at > 8) {
        grown();
        await breathe(turn);
      }
    }
    grown();
    search.grown();
  }

  return {
    el, lines,
    /**
     * Shows a log, from its beginning or from where the view is.
     * @param {import('./sources.js').Source} source @param {number} line to show, or -1 @param {boolean} live shows the end of a log that goes on
     */
    open(source, line, live) {
      if (from && source.id === from.id) {
        if (line >= 0 && line !== marked) jump(line);
        return;
      }
      from = source;
      if (reading) reading.close();
      lines.clear();
      search.clear();
      marked = -1;
      wanted = line;
      following = live && line < 0;
      follow.set(following);
      state = 'loading';
      view.scrollTop = 0;
      list.update();
      set(download, { href: source.download, download: source.id.replace(/[^\w.-]+/g, '-') + '.txt' });
      grown();
      reading = feed(() => source.url(lines.next), receive, s => { state = s; say(); }, batch => batch.some(source.last));
    },
    close() {
      if (reading) reading.close();
      list.close();
    },
  };
}

/** @param {number} at */
function stamp(at) {
  if (Number.isNaN(at)) return '';
  const d = new Date(at);
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0');
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}

/** @param {string} text @param {boolean} on @param {(on: boolean) => void} changed */
function toggle(text, on, changed) {
  const el = h('button', { type: 'button', class: 'toggle', 'aria-pressed': String(on), on: { click: () => {
    on = !on;
    set(el, { 'aria-pressed': String(on) });
    changed(on);
  } } }, text);
  return { el, set: (/** @type {boolean} */ v) => { on = v; set(el, { 'aria-pressed': String(v) }); } };
}
