// The parts of a run along the time: how long each waited and ran.
import { fill, h, keyed, set, write } from './dom.js';
import { badge, look } from './status.js';
import { t } from './texts.js';
import { lasting, ms, now, span } from './time.js';

/**
 * @param {import('./model.js').Model} model @param {(n: any) => string} href
 * @param {import('./phases.js').Store} store has the phases around the steps
 */
export function timeline(model, href, store) {
  const rows = h('ol');
  const scale = h('div', { class: 'scale', 'aria-hidden': 'true' });
  const el = h('section', { class: 'timeline', 'aria-label': t.run.timeline, hidden: true }, scale, rows);
  let timer = 0, from = 0, to = 1;

  const row = (/** @type {any} */ first) => {
    const status = badge(first.status, true), name = h('span', { class: 'name' }), took = lasting(), link = h('a', {}, status.el, name);
    const wait = h('span', { class: 'wait' }), bar = h('span', { class: 'bar' }), track = h('span', { class: 'track', 'aria-hidden': 'true' }, wait, bar);
    const el = h('li', { class: 'kind-' + first.kind }, link, track, took.el);
    return { el, update: (/** @type {any} */ n) => {
      status.update(n.status);
      write(name, n.kind === 'phase' ? n.name : model.title(n));
      set(link, { href: n.href || href(n) });
      set(bar, { class: `bar fill-${look(n.status)}` });
      took.update(n.started_at || n.created_at, n.ended_at);
      const made = ms(n.created_at), began = ms(n.started_at), end = Number.isNaN(ms(n.ended_at)) ? now() : ms(n.ended_at);
      place(wait, made, Number.isNaN(began) ? end : began);
      place(bar, began, end);
    } };
  };

  /** @param {any} bar @param {number} a @param {number} b */
  function place(bar, a, b) {
    const none = Number.isNaN(a) || b <= a;
    set(bar, { hidden: none });
    if (none) return;
    bar.style.left = `${100 * (a - from) / (to - from)}%`;
    bar.style.width = `${100 * (b - a) / (to - from)}%`;
  }

  /** The rows, with the phases of each stage around its steps. */
  function parts() {
    const out = /** @type {any[]} */ ([]);
    const add = (/** @type {any} */ n) => {
      const around = n.kind === 'step' ? null : store.of(n);
      if (n.kind !== 'pipeline' && !n.phase) out.push(n);
      if (around) out.push(...around.first);
      for (const c of model.children(n)) add(c);
      if (around) out.push(...around.last);
    };
    const root = model.root();
    if (root) add(root);
    return out;
  }

  function draw() {
    clearTimeout(timer);
    if (el.hidden || !model.run) return;
    const more = store.read(model.nodes.values());
    const all = parts();
    from = ms(model.run.created_at);
    const end = ms(model.run.ended_at);
    // A cleanup may end after its run.
    to = Math.max(from + 1, Number.isNaN(end) ? now() : end, ...all.filter(n => n.kind === 'phase').map(n => ms(n.ended_at) || 0));
    fill(scale, [0, 0.25, 0.5, 0.75, 1].map(f => h('span', {}, span(f * (to - from)))));
    keyed(rows, all, n => n.path, row);
    if (Number.isNaN(end) || more) timer = window.setTimeout(draw, 1000);
  }

  return { el, draw, show(/** @type {boolean} */ on) {
    set(el, { hidden: !on });
    draw();
  }, close() { clearTimeout(timer); el.hidden = true; } };
}
