// The stages of a run in a row. Those that run beside each other are below each other, and the children of a strategy are a grid.
import { h, keyed, set, write } from './dom.js';
import { matrixText } from './model.js';
import { badge } from './status.js';
import { t } from './texts.js';
import { lasting } from './time.js';

/** @param {import('./model.js').Model} model @param {(n: any) => string} href */
export function graph(model, href) {
  const list = h('ol');
  const el = h('nav', { class: 'graph', 'aria-label': t.run.stages }, list);
  let marked = '';

  const box = (/** @type {any} */ first) => {
    const status = badge(first.status, true), took = lasting(), name = h('span', { class: 'name' }), steps = h('span', { class: 'sub' });
    const link = h('a', { class: 'stage' }, status.el, name, took.el, steps);
    const cells = h('ol', { class: 'cells', 'aria-label': t.run.stageCells });
    const el = h('li', { class: 'box' }, link, cells);
    return { el, update: (/** @type {any} */ n) => {
      const current = model.nodes.get(n.path) || n;
      status.update(current.status);
      set(link, { href: href(current), 'aria-current': inside(current.path) ? 'true' : null, class: `stage edge-${current.status}` });
      write(name, current.name || current.identifier);
      took.update(current.started_at, current.ended_at);
      const tally = model.tally(current);
      write(steps, tally.all ? `${tally.done}/${tally.all}` : '');
      keyed(cells, current.kind === 'strategy' ? model.children(current) : [], c => c.path, cell);
      set(cells, { hidden: current.kind !== 'strategy' });
    } };
  };

  const cell = (/** @type {any} */ first) => {
    const status = badge(first.status, true), text = h('span');
    const link = h('a', { class: 'cell' }, status.el, text);
    const el = h('li', {}, link);
    return { el, update: (/** @type {any} */ n) => {
      status.update(n.status);
      write(text, n.matrix ? matrixText(n.matrix) : n.name || n.identifier);
      set(link, { href: href(n), 'aria-current': inside(n.path) ? 'true' : null });
    } };
  };

  /** @param {string} path */
  const inside = path => marked === path || marked.startsWith(path + '.');

  const column = () => {
    const inner = h('ol');
    return { el: h('li', { class: 'column' }, inner), update: (/** @type {any[]} */ c) => keyed(inner, c, n => n.path, box) };
  };

  function show() {
    keyed(list, columns(model), c => c[0].path, column);
  }

  return { el, show, mark(/** @type {string} */ path) {
    if (path === marked) return;
    marked = path;
    show();
  } };
}

/** Groups the stages: the stages of one block run at the same time. @param {import('./model.js').Model} model @returns {any[][]} */
function columns(model) {
  const out = [];
  for (const n of model.stages()) {
    const last = out[out.length - 1];
    // The turn of all stages of a block comes at the same moment.
    if (last && last[0].created_at === n.created_at) last.push(n);
    else out.push([n]);
  }
  return out;
}
