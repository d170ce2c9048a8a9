// One stage of the manager: init, steps and cleanup with their logs.
import { calm, follow } from './account.js';
import { get, part, post } from './api.js';
import { address, fill, h, set, write } from './dom.js';
import { details } from './details.js';
import { logView } from './log.js';
import { Model } from './model.js';
import { ask, notice, outcome, tabs } from './parts.js';
import { phases } from './phases.js';
import { permit } from './role.js';
import { logOf } from './sources.js';
import { badge, ended } from './status.js';
import { t } from './texts.js';
import { lasting, since } from './time.js';
import { timeline } from './timeline.js';
import { tree } from './tree.js';

/** @param {any} ctx */
export function stage(ctx) {
  const model = new Model();
  let q = new URLSearchParams();
  /** @type {any} */
  let s = null;
  const href = (/** @type {any} */ change) => address('stages/' + ctx.id, { ...Object.fromEntries(q), ...change });
  const name = h('h1'), status = badge('QUEUED'), began = since(), took = lasting(), reason = h('p', { class: 'reason' }), about = h('p', { class: 'sub' }), result = outcome();
  const abort = h('button', { type: 'button', class: 'danger', on: { click: async () => {
    if (await ask({ title: t.run.abortTitle, text: t.run.abortRun, go: t.run.aborting, danger: true })) await result.of(() => post(`api/stages/${part(ctx.id)}/abort`));
  } } }, t.run.abort);
  const message = notice();
  const views = tabs(t.run.views, ['steps', 'timeline'].map(v => ({ name: v, text: t.run[v] })), v => href({ view: v === 'steps' ? '' : v }));
  const parts = tree(model, n => href({ node: n.path, view: '', line: '' }));
  const panelTabs = tabs(t.run.panel, ['log', 'details'].map(v => ({ name: v, text: t.run[v] })), v => href({ tab: v, line: '' }));
  const log = logView({ name: t.run.log, link: line => ctx.go('stages/' + ctx.id, { ...Object.fromEntries(q), line: line + 1 }, true) });
  const info = details(model);
  const panelName = h('h2'), panelStatus = badge('QUEUED'), panelReason = h('p', { class: 'reason' });
  const panel = h('section', { class: 'panel', 'aria-label': t.run.details }, h('header', { class: 'panel-head' }, panelStatus.el, panelName), panelReason, panelTabs.el, log.el, info.el);
  const steps = h('div', { class: 'steps' }, h('nav', { class: 'parts', 'aria-label': t.run.parts }, parts.el), panel);
  const time = timeline(model, n => href({ node: n.path, view: '', line: '' }), { of: n => n.kind === 'pipeline' ? phases(s) : null, read: () => false });
  const body = h('div', { hidden: true }, h('header', { class: 'run-head' }, h('div', { class: 'run-title' }, name, status.el, h('span', { class: 'grow' }), permit(ctx.session, 'run', abort)), about, reason, result.el),
    views.el, steps, time.el);
  const el = h('div', { class: 'run' }, message.el, body);
  message.loading();

  const refresh = calm(async () => {
    try {
      s = await get('api/stages/' + part(ctx.id));
    } catch (err) {
      if (!s || err.status === 404) message.failed(err.status === 404 ? new Error(t.stages.missing) : err, refresh.run);
      return;
    }
    model.version = 0;
    model.apply(asRun(s));
    show();
  }, 300);
  const events = follow(e => { if (e.type === 'missed' || e.stage_id === ctx.id) refresh.run(); }, ctx.tell);
  refresh.run();

  function show() {
    if (!s) return;
    message.clear();
    set(body, { hidden: false });
    ctx.title(`${s.name || s.id} ${t.status[s.status] || ''}`);
    write(name, s.name || s.id);
    status.update(s.status);
    began.update(s.submitted_at);
    took.update(s.started_at, s.ended_at);
    if (!about.firstChild) fill(about, h('span'), began.el, took.el, h('span'));
    write(about.firstChild, [s.pipeline, ...Object.entries(s.labels || {}).map(([k, v]) => `${k}=${v}`), ...s.selectors].filter(Boolean).join(' · '));
    fill(about.lastChild, s.delegate_id ? h('a', { href: address('delegates', { id: s.delegate_id }) }, s.delegate_id) : null);
    write(reason, s.status === 'QUEUED' ? t.stages.waits(s.place, s.reason || '') : s.error_msg || '');
    set(reason, { hidden: !reason.textContent });
    set(abort, { hidden: ended(s.status) });
    const v = q.get('view') === 'timeline' ? 'timeline' : 'steps';
    views.update(v);
    set(steps, { hidden: v !== 'steps' });
    time.show(v === 'timeline');
    const n = model.nodes.get(q.get('node') || '') || model.interesting();
    parts.show(n ? n.path : '');
    if (!n) return;
    write(panelName, model.title(n));
    panelStatus.update(n.status);
    write(panelReason, n.reason || '');
    set(panelReason, { hidden: !n.reason });
    const key = n.started_at || n.order === 0 ? n.log_key : ''; // the log of the first part says why a stage waits
    const tab = key && q.get('tab') !== 'details' ? 'log' : 'details';
    set(panelTabs.el, { hidden: !key });
    panelTabs.update(tab);
    set(log.el, { hidden: tab !== 'log' });
    set(info.el, { hidden: tab === 'log' });
    const line = Number(q.get('line'));
    if (tab === 'log') log.open(logOf(key, ended(n.status)), line > 0 ? line - 1 : -1, !ended(n.status));
    else info.show(n);
  }

  return {
    el,
    /** @param {URLSearchParams} query */
    update(query) {
      q = query;
      show();
    },
    close() {
      events.close();
      refresh.close();
      time.close();
      log.close();
    },
  };
}

/** A stage in the form of a run. @param {any} s */
function asRun(s) {
  const root = { path: 'pipeline', kind: 'pipeline', status: s.status, order: 0 };
  const all = [s.init, ...s.steps, s.cleanup].filter(p => p && (p.status || p.id));
  const nodes = all.map((p, i) => ({
    path: 'part.' + p.id, phase: p === s.init || p === s.cleanup, parent: 'pipeline', kind: 'step', identifier: p.id, name: p.name || t.stages.parts[p.id.replace(/^:/, '')] || p.id, order: i,
    status: p.status || 'NOT_STARTED', attempt: 1, reason: p.error_msg || '', failure_kind: p.failure_kind, exit_code: p.started_at ? p.exit_code : undefined,
    created_at: p.started_at || s.submitted_at, started_at: p.started_at, ended_at: p.ended_at, log_key: p.log_key, outputs: outputs(p), tests: p.tests, artifact: p.artifact,
  }));
  return { run: { version: 1, created_at: s.submitted_at, ended_at: s.ended_at, status: s.status }, nodes: [root, ...nodes] };
}

/** @param {any} p */
function outputs(p) {
  const all = { ...(p.output_vars || {}) };
  for (const o of p.outputs || []) all[o.key || o.name] = String(o.value);
  return all;
}
