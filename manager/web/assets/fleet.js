// What delegates keep, reach and become: perpetual tasks, daemon sets, connectors, and the update to another version.
import { call, get, part, post } from './api.js';
import { fill, h, write } from './dom.js';
import { ask, header } from './parts.js';
import { action, listing, named, pages, time } from './plans.js';
import { t } from './texts.js';
import { span } from './time.js';

const sub = (/** @type {any[]} */ ...text) => h('div', { class: 'sub' }, text);
const problem = (/** @type {string} */ text) => text ? h('div', { class: 'problem' }, text) : null;
const chips = (/** @type {string[]|undefined} */ tags, /** @type {string} */ none) => tags?.length ? tags.map(tag => h('span', { class: 'chip' }, tag)) : none;

/** @param {any} ctx */
export function perpetual(ctx) {
  const w = t.perpetual;
  return listing(ctx, 'perpetual', [w.id, w.holder, w.last, w.next, ''], () => pages('api/perpetual', 'tasks', 'after'), (p, refresh, result) => {
    const send = async (/** @type {string} */ what, /** @type {any} */ body) => {
      await result.of(() => post(`api/perpetual/${part(p.id)}/${what}`, body));
      refresh();
    };
    const pause = async () => {
      const answer = await ask({ title: w.pauseTitle, text: w.pauseText, fields: [{ name: 'note', label: w.note, max: 1000 }], go: w.pause });
      if (answer) await send('pause', answer.note ? { note: answer.note } : {});
    };
    return [
      named(p, [p.type, p.loop ? w.loop : w.every(span(p.interval_ms)), ...(p.selectors || [])].join(' · ')),
      p.paused ? [w.paused, p.note ? sub(p.note) : null]
        : p.delegate_id ? [p.delegate_name || p.delegate_id, sub(w.since, ' ', time(p.assigned_at))] : h('span', { class: 'warn' }, p.waiting),
      [time(p.last_run), p.runs ? sub(w.runs(p.runs, p.failed_runs)) : null, problem(p.failures ? w.failures(p.failures, p.last_error || '') : ''), problem(p.blocked), p.events_waiting ? sub(w.events(p.events_waiting)) : null],
      p.paused ? '' : time(p.next_run),
      h('div', { class: 'buttons' }, p.paused ? null : action(ctx, w.run, p.id, () => send('run')), action(ctx, p.paused ? w.resume : w.pause, p.id, p.paused ? () => send('resume') : pause)),
    ];
  });
}

/** How many delegates of a daemon set are shown. Those that are not healthy come first. */
const SHOWN = 100;

/** @param {any} ctx */
export function daemons(ctx) {
  const w = t.daemons;
  return listing(ctx, 'daemons', [w.id, w.tags, w.tasks, w.healthy], async () => (await get('api/daemon-sets')).daemon_sets, s => {
    const all = (s.delegates || []).toSorted((/** @type {any} */ a, /** @type {any} */ b) => Number(a.healthy) - Number(b.healthy)), healthy = all.filter((/** @type {any} */ d) => d.healthy).length;
    const rows = all.slice(0, SHOWN).map((/** @type {any} */ d) => h('tr', {}, h('td', {}, d.delegate_name || d.delegate_id), h('td', {}, d.healthy ? w.ok : d.reported_at ? w.bad : w.silent, problem(d.error_msg)), h('td', { class: 'num' }, d.task_ids.length), h('td', {}, time(d.reported_at))));
    return [
      named(s, s.type, s.hold ? w.hold : ''), chips(s.selectors, w.all), (s.tasks || []).length,
      [h('span', { class: healthy < all.length ? 'strong' : '' }, w.of(healthy, all.length)), healthy < all.length ? problem(all[0].error_msg) : null,
        all.length ? h('details', {}, h('summary', {}, w.delegates), h('table', { class: 'data' }, header([w.name, w.state, w.tasks, w.reported]), h('tbody', {}, rows)), all.length > SHOWN ? sub(w.more(all.length - SHOWN)) : null) : null],
    ];
  });
}

/** @param {any} ctx */
export function connectors(ctx) {
  const w = t.connectors;
  const told = h('p'), steps = h('ul', { class: 'results' });
  const test = async (/** @type {string} */ id, /** @type {any} */ result) => {
    write(told, w.testing(id));
    fill(steps);
    const got = await result.of(() => post(`api/connectors/${part(id)}/test`));
    write(told, got ? (got.ok ? w.works(id) : w.fails(id)) : '');
    if (got) fill(steps, got.steps.map((/** @type {any} */ s) => h('li', { class: s.ok ? '' : 'problem' }, `${s.ok ? w.ok : w.failed} · ${s.name} · ${span(s.millis)} · ${s.message}`, s.remedy ? sub(s.remedy) : null)));
  };
  return listing(ctx, 'connectors', [w.id, w.kind, w.address, w.tags, w.updated, ''], async () => (await get('api/connectors')).connectors, (c, _, result) => [
    named(c), c.kind, c.address ? h('code', {}, c.address) : w.preset, chips(c.selectors, w.any), time(c.updated_at),
    action(ctx, w.test, c.id, () => test(c.id, result)),
  ], { above: () => h('div', { class: 'spaced', role: 'status' }, told, steps) });
}

/** @param {any} ctx */
export function upgrades(ctx) {
  const w = t.upgrades;
  const load = async () => {
    const u = await get('api/upgrade');
    return u.version ? [u] : [];
  };
  const who = (/** @type {any[]|undefined} */ all) => (all || []).map(d => h('div', {}, d.name || d.id, sub(`${d.from} → ${d.to}`, ' · ', time(d.at)), problem(d.reason)));
  return listing(ctx, 'upgrades', [w.version, w.progress, w.away, w.failed, w.versions, ''], load, (u, refresh, result) => {
    const goes = u.state === 'running';
    return [
      h('div', {}, h('div', { class: 'strong' }, u.version), sub(w.rule(u.share, u.max_failures, span(u.return_ms)))),
      [h('span', { class: goes ? '' : 'warn' }, w.states[u.state] || u.state), sub(w.returned(u.returned || 0))], who(u.away), who(u.failed),
      Object.entries(u.versions || {}).map(([version, n]) => h('div', {}, `${version || t.none}: ${n}`)),
      action(ctx, goes ? w.pause : w.resume, w.update, async () => {
        await result.of(async () => {
          const { version, share, max_failures, return_ms } = await get('api/upgrade'); // another operator may have changed it
          await call('PUT', 'api/upgrade', { version, share, max_failures, return_ms, paused: goes });
        });
        refresh();
      }),
    ];
  }, { key: () => '' });
}
