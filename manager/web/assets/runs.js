// The list of runs. Its filters are in the address.
import { calm } from './account.js';
import { get, query } from './api.js';
import { address, fill, h, keyed, set, write } from './dom.js';
import { feed } from './feed.js';
import { filters, notice } from './parts.js';
import { badge } from './status.js';
import { t } from './texts.js';
import { lasting, ms, since } from './time.js';

const STATUSES = ['RUNNING', 'QUEUED', 'FAILED', 'SUCCEEDED', 'ABORTED', 'EXPIRED', 'APPROVAL_WAITING', 'INPUT_WAITING', 'INTERVENTION_WAITING', 'ERRORED', 'IGNORE_FAILED', 'APPROVAL_REJECTED', 'CANCELLING'];
const NAMES = ['text', 'pipeline', 'status', 'branch', 'label'];

/** @param {any} ctx */
export function runs(ctx) {
  let wanted = {};
  let serial = 0;
  /** @type {any[]} */
  let shown = [];
  const form = filters([
    { name: 'text', label: t.runs.text, type: 'search' }, { name: 'pipeline', label: t.runs.pipeline },
    { name: 'status', label: t.runs.status, options: ['', ...STATUSES], word: s => s ? t.status[s] : t.runs.any },
    { name: 'branch', label: t.runs.branch }, { name: 'label', label: t.runs.label, hint: t.runs.labelHint },
  ], values => ctx.go('runs', values, true));
  const body = h('tbody');
  const table = h('table', { class: 'list' }, h('caption', { class: 'unseen' }, t.runs.list),
    h('thead', {}, h('tr', {}, [t.runs.status, t.runs.run, t.runs.branch, t.runs.started, t.runs.duration].map(s => h('th', { scope: 'col' }, s)))), body);
  const message = notice();
  const pages = h('nav', { class: 'pages', 'aria-label': t.runs.list });
  const el = h('div', {}, h('h1', {}, t.runs.title), form.el, message.el, h('div', { class: 'scroll' }, table), pages);
  set(table, { hidden: true });
  message.loading();

  const refresh = calm(load, 1000);
  async function load() {
    const mine = ++serial;
    let page;
    try {
      page = await get('api/runs' + query(wanted));
    } catch (err) {
      if (mine === serial) message.failed(err, refresh.run);
      return;
    }
    if (mine !== serial) return;
    const filtered = NAMES.some(n => wanted[n]);
    if (page.runs.length) message.clear();
    else if (filtered) message.empty(t.runs.noMatch, '');
    else message.empty(t.runs.empty, t.runs.emptyHint);
    // An event may be newer than the answer.
    shown = page.runs.map((/** @type {any} */ r) => shown.find(o => o.id === r.id && o.version > r.version) || r);
    draw();
    fill(pages, wanted.page ? h('a', { class: 'button', href: address('runs', { ...wanted, page: '' }) }, t.first) : null,
      page.next ? h('a', { class: 'button', href: address('runs', { ...wanted, page: page.next }) }, t.more) : null);
  }

  function draw() {
    set(table, { hidden: shown.length === 0 });
    keyed(body, shown, r => r.id, row);
  }

  /** A run has changed. @param {any} r */
  function changed(r) {
    const at = shown.findIndex(o => o.id === r.id);
    if (at >= 0 && shown[at].version > r.version) return;
    const fits = matches(r, wanted);
    if (at >= 0 && fits) shown[at] = r;
    else if (at >= 0 && shown.length === 1) return refresh.run();
    else if (at >= 0) shown.splice(at, 1);
    else if (wanted.page || !fits || (shown.length >= PAGE && ms(r.created_at) < ms(shown[shown.length - 1].created_at))) return;
    else if (wanted.text) return refresh.run(); // the manager knows how words are found
    else {
      const place = shown.findIndex(o => ms(o.created_at) < ms(r.created_at));
      shown.splice(place < 0 ? shown.length : place, 0, r);
      shown.length = Math.min(shown.length, PAGE);
      message.clear();
    }
    draw();
  }

  const events = feed(() => 'api/run-events', batch => {
    // The first message of each connection is that changes may be missing.
    if (batch.some(m => m.type === 'missed')) refresh.run();
    for (const m of batch) if (m.type === 'message') changed(JSON.parse(m.data));
  }, (state, err) => {
    ctx.tell(state);
    if (state === 'failed' && err) message.failed(err, refresh.run);
  });
  ctx.title(t.runs.title);
  return {
    el,
    /** @param {URLSearchParams} q */
    update(q) {
      wanted = {};
      for (const name of [...NAMES, 'page']) if (q.get(name)) wanted[name] = q.get(name);
      form.show(wanted);
      serial++;
      refresh.run();
    },
    close() {
      events.close();
      refresh.close();
    },
  };
}

const PAGE = 50; // runs of a page of the API

/** Reports whether a filter selects a run, as far as the page can know. @param {any} r @param {Record<string, string>} f */
function matches(r, f) {
  const [name, ...value] = (f.label || '').split('=');
  return (!f.pipeline || r.pipeline === f.pipeline) && (!f.status || r.status === f.status) && (!f.branch || r.branch === f.branch) &&
    (!name || (r.labels || {})[name] === value.join('='));
}

/** @param {any} first */
function row(first) {
  const status = badge(first.status), began = since(), took = lasting();
  const name = h('a', { class: 'main-link' }), reason = h('div', { class: 'sub' }), branch = h('td', { class: 'branch' });
  const el = h('tr', {}, h('td', { class: 'tight' }, status.el), h('td', { class: 'wide' }, name, reason), branch, h('td', { class: 'tight' }, began.el), h('td', { class: 'tight' }, took.el));
  return { el, update: (/** @type {any} */ r) => {
    status.update(r.status);
    set(name, { href: address('runs/' + r.id) });
    write(name, t.run.title(r.name || r.pipeline, r.number));
    write(reason, r.reason || [r.user, t.cause[r.cause] || r.cause].filter(Boolean).join(' · '));
    write(branch, r.branch || '');
    began.update(r.created_at);
    took.update(r.created_at, r.ended_at);
  } };
}
