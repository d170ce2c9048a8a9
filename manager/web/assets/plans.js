// What starts by itself, and how much may run: schedules, triggers and limits.
import { calm, repeat } from './account.js';
import { call, get, part, post, query } from './api.js';
import { address, fill, h, keyed, set } from './dom.js';
import { ask, notice, outcome } from './parts.js';
import { permit } from './role.js';
import { section } from './queue.js';
import { t } from './texts.js';
import { clock, ms, since } from './time.js';

/**
 * A view of one table that is read again now and then. Its rows have an id, by default `id`.
 * @param {any} ctx @param {string} name @param {string[]} columns @param {() => Promise<any[]>} load
 * @param {(item: any, refresh: () => void, result: any) => any[]} cells of an item
 * @param {{above?: (refresh: () => void, result: any) => any, key?: (item: any) => string}} [more] what is above the table
 */
export function listing(ctx, name, columns, load, cells, { above, key = item => item.id } = {}) {
  const title = t[name].title || t.views[name];
  const message = notice(), result = outcome(), table = section(title, columns);
  table.el.classList.add('alone');
  const el = h('div', {}, h('h1', {}, title), result.el, message.el, table.el);
  message.loading();
  const refresh = calm(async () => {
    try {
      const rows = await load();
      set(table.el, { hidden: !rows.length });
      keyed(table.body, rows, key, () => line(item => cells(item, refresh.run, result)));
      if (rows.length) message.clear();
      else message.empty(t[name].empty, t[name].hint);
    } catch (err) {
      message.failed(err, refresh.run);
    }
  }, 1000);
  if (above) el.insertBefore(above(refresh.run, result), message.el);
  const poll = repeat(refresh.run, 10_000);
  refresh.run();
  ctx.title(title);
  return { el, update() {}, close() { poll.close(); refresh.close(); } };
}

/** A row that is drawn again when its item has changed. What was open stays open, and the focus stays. @param {(item: any) => any[]} cells */
function line(cells) {
  const el = h('tr'), all = (/** @type {string} */ what) => [...el.querySelectorAll(what)], controls = 'a, button, summary';
  let drawn = '';
  return { el, update(/** @type {any} */ item) {
    const text = JSON.stringify(item);
    if (text === drawn) return;
    drawn = text;
    const at = all(controls).indexOf(document.activeElement), open = all('details').map(d => d.open);
    fill(el, cells(item).map(c => h('td', {}, c)));
    all('details').forEach((d, i) => { d.open = Boolean(open[i]); });
    if (at >= 0) (all(controls)[at] || all(controls).at(-1))?.focus();
  } };
}

/** Reads the pages of a list, up to as many rows as a table shows. @param {string} path @param {string} member @param {string} parameter of the next page */
export async function pages(path, member, parameter) {
  const rows = [];
  let next = '';
  do {
    const got = await get(path + query({ [parameter]: next }));
    rows.push(...got[member]);
    next = got.next || '';
  } while (next && rows.length < 5000);
  return rows;
}

/** A button of a row, for sessions that may operate. @param {any} ctx @param {string} text @param {string} id @param {() => any} click */
export const action = (ctx, text, id, click) => permit(ctx.session, 'operate', h('button', { type: 'button', 'aria-label': `${text} ${id}`, on: { click } }, text));

/** The first cell of a row: a name with its id, or the id. @param {any} item @param {any[]} rest lines below */
export const named = (item, ...rest) => h('div', {}, h('div', { class: 'strong' }, item.name || item.id), [item.name ? item.id : '', ...rest].filter(Boolean).map(s => h('div', { class: 'sub' }, s)));

export const time = (/** @type {string|undefined} */ text) => {
  const s = since();
  s.update(text);
  return s.el;
};

/** @param {any} ctx */
export function schedules(ctx) {
  const w = t.schedules;
  return listing(ctx, 'schedules', [w.id, w.cron, w.next, w.last, ''], async () => (await get('api/schedules')).schedules, (s, refresh, result) => [
    named(s),
    h('div', {}, h('code', {}, s.cron), h('div', { class: 'sub' }, s.time_zone || 'UTC')),
    s.paused ? w.paused : h('span', { title: clock(ms(s.next)) }, time(s.next)),
    h('div', {}, time(s.last), s.last_id ? h('div', {}, h('a', { href: address('stages/' + s.last_id) }, s.last_id)) : null, s.last_error ? h('div', { class: 'problem' }, s.last_error) : null),
    h('div', { class: 'buttons' },
      action(ctx, w.trigger, s.id, async () => {
        const got = await result.of(() => post(`api/schedules/${part(s.id)}/trigger`));
        if (got) ctx.go('stages/' + got.id, {});
      }),
      action(ctx, s.paused ? w.resume : w.pause, s.id, async () => {
        await result.of(() => call('PUT', `api/schedules/${part(s.id)}`, input(s, !s.paused)));
        refresh();
      })),
  ]);
}

/** The members of a schedule that a caller may set. @param {any} s @param {boolean} paused */
function input(s, paused) {
  const { next, last, last_id, last_error, ...rest } = s;
  return { ...rest, paused };
}

/** @param {any} ctx */
export function triggers(ctx) {
  const w = t.triggers;
  return listing(ctx, 'triggers', [w.id, w.kind, w.pipeline, w.next, w.last], () => pages('api/triggers', 'triggers', 'page'), g => [
    named(g, g.disabled ? w.disabled : ''),
    g.kind === 'cron' ? h('div', {}, h('code', {}, g.cron || ''), h('div', { class: 'sub' }, g.time_zone || 'UTC')) : [g.provider || g.kind, g.source && g.source.repository, ...(g.branches || [])].filter(Boolean).join(' · '),
    g.pipeline, time(g.next),
    h('div', {}, time(g.last), g.last_run ? h('div', {}, h('a', { href: address('runs/' + g.last_run) }, g.last_run)) : null, g.last_error ? h('div', { class: 'problem' }, g.last_error) : null),
  ]);
}

/** @param {any} ctx */
export function limits(ctx) {
  const w = t.limits;
  const change = async (/** @type {any} */ result, /** @type {() => void} */ refresh, /** @type {string} */ group, /** @type {any} */ max) => {
    const answer = await ask({ title: w.change, text: w.help, fields: [{ name: 'group', label: w.group, value: group, max: 520 }, { name: 'max', label: w.max, value: max, max: 10 }], go: w.set });
    if (answer) await result.of(() => call('PUT', 'api/limits', { group: answer.group.trim(), max: Number(answer.max) }));
    refresh();
  };
  return listing(ctx, 'limits', [w.group, w.used, w.max, ''], async () => (await get('api/limits')).limits, (l, refresh, result) => [
    h('code', {}, l.group), h('span', { class: l.used >= l.max ? 'strong' : '' }, l.used || 0, l.used >= l.max ? ` · ${w.full}` : ''), l.max,
    action(ctx, w.change, l.group, () => change(result, refresh, l.group, l.max)),
  ], {
    key: l => l.group,
    above: (refresh, result) => h('div', { class: 'buttons spaced' }, permit(ctx.session, 'operate', h('button', { type: 'button', on: { click: () => change(result, refresh, '', '') } }, w.add))),
  });
}
