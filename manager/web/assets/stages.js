// The stages of the manager, of runs and others, newest first.
import { calm, follow } from './account.js';
import { get, part, query } from './api.js';
import { address, h, set, write } from './dom.js';
import { filters, notice } from './parts.js';
import { badge } from './status.js';
import { t } from './texts.js';
import { lasting, since } from './time.js';
import { virtual } from './virtual.js';

const STATUSES = ['QUEUED', 'RUNNING', 'SUCCESS', 'FAILURE', 'TIMEOUT', 'ABORTED'];
const NAMES = ['text', 'status', 'pipeline', 'label'];
const MOST = 50_000;
const FEW = 40;

/** All stages that a filter selects, kept up to date. */
export class Stages {
  /** @param {() => void} changed @param {(err: Error|null) => void} told */
  constructor(changed, told) {
    // A queue with many stages sends many places at once.
    this.draw = calm(async () => changed(), 200);
    this.changed = () => this.draw.run();
    this.told = told;
    /** @type {Map<string, any>} */
    this.all = new Map();
    this.filter = {};
    /** @type {Set<string>} */
    this.stale = new Set();
    this.serial = 0;
    this.reload = calm(() => this.load(), 1000);
    this.freshen = calm(() => this.refresh(), 300);
  }

  /** @param {Record<string, string>} filter */
  select(filter) {
    this.filter = filter;
    this.serial++;
    this.reload.run();
  }

  async load() {
    const mine = ++this.serial;
    const all = new Map();
    let after = '';
    try {
      do {
        const page = await get('api/stages' + query({ ...this.filter, after }));
        if (mine !== this.serial) return;
        for (const s of page.stages) all.set(s.id, s);
        after = page.next || '';
        if (!this.all.size) this.changed();
      } while (after && all.size < MOST);
    } catch (err) {
      if (mine === this.serial) this.told(err);
      return;
    }
    this.all = all;
    this.told(null);
    this.changed();
  }

  /** @param {any} e an event of the account */
  event(e) {
    if (e.type === 'missed') return this.reload.run();
    if (!e.stage_id || e.type !== 'stage') return;
    const known = this.all.get(e.stage_id);
    if (known && e.place && known.status === 'QUEUED') {
      known.place = e.place;
      known.reason = e.reason;
      this.changed();
      return;
    }
    this.stale.add(e.stage_id);
    this.freshen.run();
  }

  async refresh() {
    const ids = [...this.stale];
    this.stale.clear();
    if (ids.length > FEW) return this.reload.run();
    const wanted = this.filter;
    const got = await Promise.allSettled(ids.map(id => get('api/stages/' + part(id))));
    if (wanted !== this.filter) return;
    got.forEach((g, i) => {
      if (g.status === 'rejected' || !this.matches(g.value)) this.all.delete(ids[i]);
      else this.all.set(ids[i], g.value);
    });
    this.changed();
  }

  /** @param {any} s */
  matches(s) {
    const f = this.filter;
    const [name, value] = (f.label || '').split('=');
    return (!f.status || s.status === f.status) && (!f.pipeline || s.pipeline === f.pipeline) && (!name || (s.labels || {})[name] === value);
  }

  close() {
    this.serial++;
    this.draw.close();
    this.reload.close();
    this.freshen.close();
  }
}

/**
 * A list of stages that draws only the rows that can be seen.
 * @param {string} label @param {() => any[]} rows @param {(s: any) => any} [extra] makes a cell before each row
 */
export function stageList(label, rows, extra) {
  const view = h('div', { class: 'rows', tabindex: 0, role: 'table', 'aria-label': label });
  const list = virtual({ view, height: 48, count: () => rows().length, create: () => {
    const status = badge('QUEUED'), name = h('a', { class: 'main-link' }), why = h('span', { class: 'sub' }), at = since(), took = lasting();
    const first = extra ? extra(null) : null;
    const cell = (/** @type {any[]} */ ...c) => h('div', { role: 'cell' }, c);
    const el = h('div', { class: 'row' + (extra ? ' picked' : ''), role: 'row' }, first ? cell(first.el) : null, cell(status.el), cell(name, why), cell(at.el), cell(took.el));
    return { el, show: (/** @type {number} */ r) => {
      const s = rows()[r];
      set(el, { 'aria-rowindex': r + 1 });
      if (first) first.update(s);
      status.update(s.status);
      write(name, s.name || s.id);
      set(name, { href: address('stages/' + s.id) });
      write(why, s.status === 'QUEUED' ? t.stages.waits(s.place, s.reason || '') : [s.error_msg, s.pipeline, s.name && s.name !== s.id ? s.id : ''].filter(Boolean).join(' · '));
      set(why, { title: why.textContent });
      at.update(s.submitted_at);
      took.update(s.started_at, s.ended_at);
    } };
  } });
  set(list.space, { role: 'rowgroup' });
  return { el: view, list, update: () => { set(view, { 'aria-rowcount': rows().length }); list.update(); } };
}

/** @param {any} ctx */
export function stages(ctx) {
  let wanted = {};
  let shown = [];
  const store = new Stages(draw, told);
  const message = notice();
  const form = filters([
    { name: 'text', label: t.runs.text, type: 'search' }, { name: 'status', label: t.runs.status, options: ['', ...STATUSES], word: s => s ? t.status[s] : t.runs.any },
    { name: 'pipeline', label: t.runs.pipeline }, { name: 'label', label: t.runs.label, hint: t.runs.labelHint },
  ], values => ctx.go('stages', values, true));
  const count = h('p', { class: 'sub', role: 'status' });
  const table = stageList(t.stages.list, () => shown);
  const el = h('div', {}, h('h1', {}, t.views.stages), form.el, count, message.el, table.el);
  set(table.el, { hidden: true });
  message.loading();
  const events = follow(e => store.event(e), ctx.tell);
  ctx.title(t.views.stages);

  function draw() {
    const text = (wanted.text || '').toLowerCase();
    shown = [...store.all.values()].reverse();
    if (text) shown = shown.filter(s => `${s.id} ${s.name || ''} ${s.error_msg || ''} ${s.reason || ''} ${s.pipeline || ''}`.toLowerCase().includes(text));
    set(table.el, { hidden: shown.length === 0 });
    write(count, shown.length ? t.stages.count(shown.length) : '');
    table.update();
  }

  /** @param {Error|null} err */
  function told(err) {
    draw();
    if (err) message.failed(err, store.reload.run);
    else if (shown.length) message.clear();
    else message.empty(NAMES.some(n => wanted[n]) ? t.stages.noMatch : t.stages.empty, '');
  }

  return {
    el,
    /** @param {URLSearchParams} q */
    update(q) {
      const before = JSON.stringify({ ...wanted, text: '' });
      wanted = {};
      for (const name of NAMES) if (q.get(name)) wanted[name] = q.get(name);
      form.show(wanted);
      const { text, ...filter } = wanted;
      if (before !== JSON.stringify({ ...wanted, text: '' }) || !store.serial) store.select(filter);
      else draw();
    },
    close() {
      events.close();
      store.close();
      table.list.close();
    },
  };
}
