// What starts by itself, and how much may run: schedules, triggers and limits.
import { calm, repeat } from './account.js';
import { call, get, part, post } from './api.js';
import { address, fill, h } from './dom.js';
import { ask, notice, outcome } from './parts.js';
import { permit } from './role.js';
import { section } from './queue.js';
import { t } from './texts.js';
import { clock, ms, since } from './time.js';

/**
 * A view of one table that is read again now and then.
 * @param {any} ctx @param {string} name @param {string[]} columns @param {(refresh: () => void, result: any) => Promise<any[][]>} load @param {any} [above]
 */
function listing(ctx, name, columns, load, above) {
  const message = notice(), result = outcome(), table = section(t.views[name], columns);
  table.el.classList.add('alone');
  const el = h('div', {}, h('h1', {}, t.views[name]), result.el, message.el, table.el);
  message.loading();
  const refresh = calm(async () => {
    try {
      const rows = await load(refresh.run, result);
      table.fill(rows);
      if (rows.length) message.clear();
      else message.empty(t[name].empty, t[name].hint);
    } catch (err) {
      message.failed(err, refresh.run);
    }
  }, 1000);
  if (above) el.insertBefore(above(refresh.run, result), message.el);
  const poll = repeat(refresh.run, 10_000);
  refresh.run();
  ctx.title(t.views[name]);
  return { el, update() {}, close() { poll.close(); refresh.close(); } };
}

const time = (/** @type {string|undefined} */ text) => {
  const s = since();
  s.update(text);
  return s.el;
};

/** @param {any} ctx */
export function schedules(ctx) {
  const w = t.schedules;
  return listing(ctx, 'schedules', [w.id, w.cron, w.next, w.last, ''], async (refresh, result) => (await get('api/schedules')).schedules.map(s => [
    h('div', {}, h('div', { class: 'strong' }, s.name || s.id), s.name ? h('div', { class: 'sub' }, s.id) : null),
    h('div', {}, h('code', {}, s.cron), h('div', { class: 'sub' }, s.time_zone || 'UTC')),
    s.paused ? w.paused : h('span', { title: clock(ms(s.next)) }, time(s.next)),
    h('div', {}, time(s.last), s.last_id ? h('div', {}, h('a', { href: address('stages/' + s.last_id) }, s.last_id)) : null, s.last_error ? h('div', { class: 'problem' }, s.last_error) : null),
    h('div', { class: 'buttons' },
      permit(ctx.session, 'operate', h('button', { type: 'button', 'aria-label': `${w.trigger} ${s.id}`, on: { click: async () => {
        const got = await result.of(() => post(`api/schedules/${part(s.id)}/trigger`));
        if (got) ctx.go('stages/' + got.id, {});
      } } }, w.trigger)),
      permit(ctx.session, 'operate', h('button', { type: 'button', 'aria-label': `${s.paused ? w.resume : w.pause} ${s.id}`, on: { click: async () => { await result.of(() => call('PUT', `api/schedules/${part(s.id)}`, input(s, !s.paused))); refresh(); } } }, s.paused ? w.resume : w.pause))),
  ]));
}

/** The members of a schedule that a caller may set. @param {any} s @param {boolean} paused */
function input(s, paused) {
  const { next, last, last_id, last_error, ...rest } = s;
  return { ...rest, paused };
}

/** @param {any} ctx */
export function triggers(ctx) {
  const w = t.triggers;
  return listing(ctx, 'triggers', [w.id, w.kind, w.pipeline, w.next, w.last], async () => {
    const rows = [];
    let page = '';
    do {
      const got = await get('api/triggers' + (page ? '?page=' + encodeURIComponent(page) : ''));
      rows.push(...got.triggers);
      page = got.next || '';
    } while (page && rows.length < 5000);
    return rows.map(g => [
      h('div', {}, h('span', { class: 'strong' }, g.id), g.disabled ? h('div', { class: 'sub' }, w.disabled) : null),
      g.kind === 'cron' ? h('div', {}, h('code', {}, g.cron || ''), h('div', { class: 'sub' }, g.time_zone || 'UTC')) : [g.provider, ...(g.branches || [])].filter(Boolean).join(' · '),
      g.pipeline, time(g.next),
      h('div', {}, time(g.last), g.last_run ? h('div', {}, h('a', { href: address('runs/' + g.last_run) }, g.last_run)) : null, g.last_error ? h('div', { class: 'problem' }, g.last_error) : null),
    ]);
  });
}

/** @param {any} ctx */
export function limits(ctx) {
  const w = t.limits;
  const change = async (/** @type {any} */ result, /** @type {() => void} */ refresh, /** @type {string} */ group, /** @type {any} */ max) => {
    const answer = await ask({ title: w.change, text: w.help, fields: [{ name: 'group', label: w.group, value: group, max: 520 }, { name: 'max', label: w.max, value: max, max: 10 }], go: w.set });
    if (answer) await result.of(() => call('PUT', 'api/limits', { group: answer.group.trim(), max: Number(answer.max) }));
    refresh();
  };
  return listing(ctx, 'limits', [w.group, w.used, w.max, ''], async (refresh, result) => (await get('api/limits')).limits.map(l => [
    h('code', {}, l.group), h('span', { class: l.used >= l.max ? 'strong' : '' }, l.used || 0, l.used >= l.max ? ` · ${w.full}` : ''), l.max,
    permit(ctx.session, 'operate', h('button', { type: 'button', 'aria-label': `${w.change} ${l.group}`, on: { click: () => change(result, refresh, l.group, l.max) } }, w.change)),
  ]), (refresh, result) => h('div', { class: 'buttons spaced' }, permit(ctx.session, 'operate', h('button', { type: 'button', on: { click: () => change(result, refresh, '', '') } }, w.add))));
}
