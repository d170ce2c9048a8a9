// The delegates: their properties, their stages, and whether they take more.
import { calm, follow, repeat } from './account.js';
import { get, part, post } from './api.js';
import { address, fill, h, keyed, set, write } from './dom.js';
import { header, notice, outcome } from './parts.js';
import { permit } from './role.js';
import { badge } from './status.js';
import { t } from './texts.js';
import { clock, ms, since } from './time.js';

/** @param {any} ctx */
export function delegates(ctx) {
  const w = t.delegates;
  const message = notice(), result = outcome(), body = h('tbody');
  const table = h('table', { class: 'list', hidden: true }, h('caption', { class: 'unseen' }, t.views.delegates),
    h('thead', {}, h('tr', {}, [w.state, w.name, w.tags, w.slots, w.runs, w.heard, ''].map(s => h('th', { scope: 'col' }, s || h('span', { class: 'unseen' }, w.actions))))), body);
  const el = h('div', {}, h('h1', {}, t.views.delegates), result.el, message.el, h('div', { class: 'scroll spaced' }, table));
  let marked = '';
  message.loading();

  const refresh = calm(async () => {
    let got;
    try {
      got = await get('api/delegates');
    } catch (err) {
      message.failed(err, refresh.run);
      return;
    }
    if (got.delegates.length) message.clear();
    else message.empty(w.empty, w.emptyHint);
    set(table, { hidden: !got.delegates.length });
    keyed(body, got.delegates, d => d.id, row);
  }, 1000);

  const row = (/** @type {any} */ first) => {
    const state = badge(first.state), name = h('div', { class: 'strong' }), sub = h('div', { class: 'sub' }), tags = h('td', { class: 'tags' }), slots = h('td', { class: 'tight num' }), runs = h('td'), heard = since();
    const refused = h('div', { class: 'sub warn', hidden: true }), refusedAt = since(), past = history();
    refused.append(h('span'), ' ', refusedAt.el);
    const drain = h('button', { type: 'button', on: { click: async () => {
      await result.of(() => post(`api/delegates/${part(first.id)}/${drain.dataset.call}`));
      refresh.run();
    } } });
    const el = h('tr', {}, h('td', { class: 'tight' }, state.el), h('td', {}, name, sub, refused, past.el), tags, slots, runs, h('td', { class: 'tight' }, heard.el), h('td', { class: 'tight' }, permit(ctx.session, 'operate', drain)));
    let drawn = '';
    return { el, update: (/** @type {any} */ d) => {
      state.update(d.state);
      write(name, d.name || d.id);
      write(sub, [d.name ? d.id : '', d.host_name, d.version, d.group ? w.group(d.group) : ''].filter(Boolean).join(' · '));
      write(slots, w.used(d.stages, d.max_stages));
      heard.update(d.last_heartbeat);
      set(refused, { hidden: !d.refused });
      if (d.refused) {
        write(refused.firstChild, w.refused(w.resources[d.refused.resource] || d.refused.resource, d.refused.load, d.refused.limit));
        refusedAt.update(d.refused.at);
      }
      past.update(d.history);
      const draining = d.state === 'DRAINING';
      write(drain, draining ? w.resume : w.drain);
      set(drain, { 'data-call': draining ? 'resume' : 'drain', 'aria-label': `${draining ? w.resume : w.drain} ${d.name || d.id}`, hidden: d.state === 'LOST' });
      set(el, { class: d.id === marked ? 'picked' : null });
      const text = JSON.stringify([d.tags, d.stage_ids]);
      if (text === drawn) return;
      drawn = text;
      fill(tags, d.tags.map((/** @type {string} */ tag) => h('span', { class: 'chip' }, tag)));
      fill(runs, (d.stage_ids || []).map((/** @type {string} */ id) => h('div', {}, h('a', { href: address('stages/' + id) }, id))));
    } };
  };

  const events = follow(e => { if (e.type !== 'task') refresh.run(); }, ctx.tell);
  const poll = repeat(refresh.run, 5000);
  refresh.run();
  ctx.title(t.views.delegates);
  return { el, update(/** @type {URLSearchParams} */ q) { marked = q.get('id') || ''; }, close() {
    events.close();
    poll.close();
    refresh.close();
  } };
}

/** What has happened to a delegate, the newest first. */
function history() {
  const w = t.delegates, body = h('tbody');
  const el = h('details', {}, h('summary', {}, w.history), h('table', { class: 'data' }, header([w.when, w.what, w.version]), body));
  let drawn = '';
  return { el, update(/** @type {any[]} */ all) {
    const text = JSON.stringify(all);
    if (text === drawn) return;
    drawn = text;
    set(el, { hidden: !all.length });
    fill(body, all.toReversed().map(c => h('tr', {}, h('td', {}, h('time', { datetime: c.at }, clock(ms(c.at)))), h('td', {}, w.kinds[c.kind] || c.kind), h('td', {}, c.version || t.none))));
  } };
}
