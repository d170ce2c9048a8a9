// The queue: what waits and why, by need and by group, and the switches of the account.
import { calm, follow, repeat } from './account.js';
import { get, post } from './api.js';
import { fill, h, keyed, set, write } from './dom.js';
import { ask, notice, outcome } from './parts.js';
import { block, may, permit } from './role.js';
import { Stages, stageList } from './stages.js';
import { t } from './texts.js';
import { span } from './time.js';

/** @param {any} ctx */
export function queue(ctx) {
  const w = t.queue;
  const mayAbort = may(ctx.session, 'run');
  /** @type {Set<string>} */
  const picked = new Set();
  let rows = [], paused = false;
  const result = outcome(), message = notice(), results = h('ul', { class: 'results', role: 'status' });
  const waiting = h('dd'), running = h('dd'), oldest = h('dd');
  const banner = h('p', { class: 'banner', role: 'status', hidden: true });
  const pause = h('button', { type: 'button', on: { click: toggle } }), abort = h('button', { type: 'button', class: 'danger', on: { click: abortPicked } });
  const needs = section(w.needs, [w.selectors, w.waiting, w.oldest, w.why]), groups = section(w.groups, [w.group, w.waiting, w.running, w.oldest, w.limit]);
  const store = new Stages(draw, err => { if (err) message.failed(err, store.reload.run); });
  const table = stageList(w.stages, () => rows, mayAbort ? () => {
    const box = h('input', { type: 'checkbox', on: { change: () => { picked[box.checked ? 'add' : 'delete'](box.value); say(); } } });
    return { el: box, update: (/** @type {any} */ s) => {
      box.value = s.id;
      box.checked = picked.has(s.id);
      set(box, { 'aria-label': w.pick(s.id) });
    } };
  } : undefined);
  const el = h('div', {}, h('div', { class: 'run-title' }, h('h1', {}, t.views.queue), h('span', { class: 'grow' }), permit(ctx.session, 'operate', pause)), banner, result.el,
    h('dl', { class: 'tiles' }, [[w.waiting, waiting], [w.running, running], [w.oldest, oldest]].map(([k, v]) => h('div', {}, h('dt', {}, k), v))),
    needs.el, groups.el, h('div', { class: 'run-title' }, h('h2', {}, w.stages), h('span', { class: 'grow' }), permit(ctx.session, 'run', abort)), results, message.el, table.el);
  set(table.el, { hidden: true });
  message.loading();

  const refresh = calm(async () => {
    let q;
    try {
      q = await get('api/queue');
    } catch (err) {
      return result.of(() => { throw err; });
    }
    result.clear();
    paused = q.paused;
    write(pause, paused ? w.resume : w.pause);
    set(banner, { hidden: !paused });
    write(banner, q.note ? w.pausedWith(q.note) : w.paused);
    write(waiting, q.waiting);
    write(running, q.running);
    write(oldest, span(Math.max(0, ...q.needs.map(n => n.oldest_waited_ms))) || t.none);
    needs.fill(q.needs.map(n => [n.selectors.join(' ') || w.any, n.waiting, span(n.oldest_waited_ms), h('span', {}, n.reason, n.detail ? h('div', { class: 'sub' }, n.detail) : null)]));
    groups.fill(q.groups.map(g => [g.group, g.waiting, g.running, g.oldest_waited_ms ? span(g.oldest_waited_ms) : '', g.max ? h('span', { class: g.used >= g.max ? 'strong' : '' }, w.used(g.used || 0, g.max)) : '']));
  }, 1000);

  function draw() {
    rows = [...store.all.values()].filter(s => s.status === 'QUEUED').sort((a, b) => (a.place || 1e9) - (b.place || 1e9));
    for (const id of picked) if (!store.all.has(id)) picked.delete(id);
    set(table.el, { hidden: !rows.length });
    if (rows.length) message.clear();
    else message.empty(w.empty, '');
    table.update();
    say();
  }

  function say() {
    write(abort, picked.size ? w.abort(picked.size) : w.abortNone);
    if (mayAbort) block(abort, picked.size ? '' : w.pickFirst);
  }

  async function toggle() {
    if (paused) await result.of(() => post('api/resume'));
    else {
      const answer = await ask({ title: w.pauseTitle, text: w.pauseText, fields: [{ name: 'note', label: w.note, max: 1000 }], go: w.pause });
      if (answer) await result.of(() => post('api/pause', answer.note ? { note: answer.note } : {}));
    }
    refresh.run();
  }

  async function abortPicked() {
    const ids = [...picked].slice(0, 1000);
    if (!await ask({ title: w.abort(ids.length) + '?', text: t.run.abortRun, go: t.run.aborting, danger: true })) return;
    const got = await result.of(() => post('api/abort', { stages: ids }));
    if (!got) return;
    picked.clear();
    fill(results, got.results.map(r => h('li', { class: r.error_msg ? 'problem' : '' }, `${r.id}: ${r.error_msg || t.status[r.status] || w.done}`)));
    draw();
  }

  const events = follow(e => { store.event(e); if (e.type === 'stage' || e.type === 'missed') refresh.run(); }, ctx.tell);
  const poll = repeat(refresh.run, 5000);
  store.select({ status: 'QUEUED' });
  refresh.run();
  say();
  ctx.title(t.views.queue);
  return { el, update() {}, close() {
    events.close();
    poll.close();
    refresh.close();
    store.close();
    table.list.close();
  } };
}

/** A section with a table. It is hidden without rows. @param {string} title @param {string[]} names */
export function section(title, names) {
  const body = h('tbody');
  const el = h('section', { class: 'block', hidden: true }, h('h2', {}, title), h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', {}, h('tr', {}, names.map(n => h('th', { scope: 'col' }, n || h('span', { class: 'unseen' }, t.delegates.actions))))), body)));
  return { el, body, fill(/** @type {any[][]} */ rows) {
    set(el, { hidden: !rows.length });
    keyed(body, rows.map((cells, i) => ({ i, cells })), r => String(r.i), () => {
      const row = h('tr');
      return { el: row, update: r => fill(row, r.cells.map((/** @type {any} */ c) => h('td', {}, c))) };
    });
  } };
}
