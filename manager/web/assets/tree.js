// The parts of a run as nested lists.
import { h, keyed, set, write } from './dom.js';
import { badge } from './status.js';
import { t } from './texts.js';
import { lasting } from './time.js';

/** @param {import('./model.js').Model} model @param {(n: any) => string} href */
export function tree(model, href) {
  const list = h('ol', { class: 'tree' });
  const empty = h('p', { class: 'sub' }, t.run.nothing);
  const el = h('div', {}, empty, list);
  let chosen = '';

  const item = (/** @type {any} */ first) => {
    const status = badge(first.status, true), took = lasting(), name = h('span', { class: 'name' }), why = h('span', { class: 'why' });
    const link = h('a', {}, status.el, name, took.el, why);
    const below = h('ol');
    const el = h('li', { class: 'kind-' + first.kind }, link, below);
    return { el, update: (/** @type {any} */ n) => {
      status.update(n.status);
      write(name, model.title(n) + (n.attempt > 1 ? ` · ${t.run.attempt} ${n.attempt}` : ''));
      took.update(n.started_at, n.ended_at);
      write(why, n.kind === 'step' || n.status === 'QUEUED' || n.status === 'SKIPPED' ? n.reason || '' : '');
      set(link, { href: href(n), 'aria-current': n.path === chosen ? 'true' : null });
      keyed(below, model.children(n), c => c.path, item);
    } };
  };

  return { el, show(/** @type {string} */ path) {
    const stages = model.stages();
    chosen = path;
    set(empty, { hidden: stages.length > 0 });
    keyed(list, stages, n => n.path, item);
  } };
}
