// One run: its stages, its parts, the log of the chosen part, and what may be done.
import { actions } from './actions.js';
import { Failure, part, query } from './api.js';
import { address, fill, h, set, write } from './dom.js';
import { details, expressions, results } from './details.js';
import { feed } from './feed.js';
import { graph } from './graph.js';
import { inputs } from './inputs.js';
import { logView } from './log.js';
import { Model } from './model.js';
import { notice, tabs } from './parts.js';
import { phaseStore } from './phases.js';
import { logOf, logsOf } from './sources.js';
import { badge, ended } from './status.js';
import { t } from './texts.js';
import { lasting, since } from './time.js';
import { timeline } from './timeline.js';
import { tree } from './tree.js';
import { definition } from './yaml.js';

const VIEWS = ['steps', 'logs', 'timeline', 'results', 'expressions', 'inputs', 'yaml'];
const RECHECK = 20_000;

/** @param {any} ctx */
export function run(ctx) {
  const model = new Model();
  let q = new URLSearchParams();
  let again = 0;
  /** @type {any} */
  let source = null;

  const href = (/** @type {any} */ change) => address('runs/' + ctx.id, { ...Object.fromEntries(q), ...change });
  const status = badge('NOT_STARTED'), began = since(), took = lasting();
  const name = h('h1'), reason = h('p', { class: 'reason' }), about = h('p', { class: 'sub' });
  const act = actions(ctx, model, reopen);
  const head = h('header', { class: 'run-head' }, h('div', { class: 'run-title' }, name, status.el, h('span', { class: 'grow' }), act.el), about, reason, act.outcome);
  const message = notice();
  const views = tabs(t.run.views, VIEWS.map(v => ({ name: v, text: t.run[v] })), v => href({ view: v === 'steps' ? '' : v }));
  const stages = graph(model, n => href({ node: n.path, view: '', line: '' }));
  const parts = tree(model, n => href({ node: n.path, view: '', line: '' }));
  const log = logView({ name: t.run.log, link: line => ctx.go('runs/' + ctx.id, { ...Object.fromEntries(q), line: line + 1 }, true) });
  const all = logView({ name: t.run.logs, link: (line, of) => ctx.go('runs/' + ctx.id, { node: of, line: line + 1 }) });
  const info = details(model);
  const panelTabs = tabs(t.run.panel, [{ name: 'log', text: t.run.log }, { name: 'details', text: t.run.details }], v => href({ tab: v, line: '' }));
  const panelName = h('h2'), panelStatus = badge('NOT_STARTED'), panelTook = lasting(), panelReason = h('p', { class: 'reason' });
  const panel = h('section', { class: 'panel', 'aria-label': t.run.details }, h('header', { class: 'panel-head' }, panelStatus.el, panelName, panelTook.el, h('span', { class: 'grow' }), act.part),
    panelReason, panelTabs.el, log.el, info.el);
  const steps = h('div', { class: 'steps' }, h('nav', { class: 'parts', 'aria-label': t.run.parts }, parts.el), panel);
  const time = timeline(model, n => href({ node: n.path, view: '', line: '' }), phaseStore(() => time.draw()));
  const table = expressions(model);
  const found = results(model, n => href({ node: n.path, view: '', tab: 'details', line: '' }));
  const yaml = definition('api/runs/' + part(ctx.id));
  const given = inputs('api/runs/' + part(ctx.id), model);
  const body = h('div', {}, stages.el, views.el, steps, all.el, time.el, found.el, table.el, given.el, yaml.el);
  const el = h('div', { class: 'run' }, message.el, head, body);
  set(head, { hidden: true });
  set(body, { hidden: true });
  message.loading();
  open();

  function open() {
    if (source) source.close();
    clearTimeout(again);
    source = feed(() => 'api/runs/' + part(ctx.id) + '/events' + query({ since: model.version }), receive, tell, batch => batch.some(ends));
  }

  function reopen() {
    model.restart();
    open();
  }

  /** @param {string} state @param {Failure} [err] */
  function tell(state, err) {
    ctx.tell(state);
    if (state === 'failed' && err) message.failed(err.status === 404 ? new Error(t.run.missing) : err, open);
    // A person may retry a run that has ended.
    if (state === 'ended') again = window.setTimeout(open, RECHECK);
  }

  /** @param {any} m */
  function ends(m) {
    return Boolean(model.run && model.run.ended_at && m.data);
  }

  /** @param {any[]} batch */
  function receive(batch) {
    for (const m of batch) if (m.type === 'message') model.apply(JSON.parse(m.data));
    if (model.run) show();
  }

  function chosen() {
    return model.nodes.get(q.get('node') || '') || model.interesting();
  }

  function show() {
    const r = model.run;
    message.clear();
    set(head, { hidden: false });
    set(body, { hidden: false });
    const text = t.run.title(r.name || r.pipeline, r.number);
    ctx.title(`${text} ${t.status[r.status] || ''}`);
    write(name, text);
    status.update(r.status);
    began.update(r.created_at);
    took.update(r.created_at, r.ended_at);
    if (!about.firstChild) fill(about, h('span', { class: 'about' }), began.el, took.el);
    write(about.firstChild, [r.branch, r.user, t.cause[r.cause] || r.cause].filter(Boolean).join(' · '));
    write(reason, r.reason || '');
    set(reason, { hidden: !r.reason });
    const v = VIEWS.includes(q.get('view') || '') ? q.get('view') : 'steps';
    views.update(v);
    set(steps, { hidden: v !== 'steps' });
    set(all.el, { hidden: v !== 'logs' });
    if (v === 'logs') all.open(logsOf(ctx.id), -1, !r.ended_at);
    stages.show();
    time.show(v === 'timeline');
    found.show(v === 'results');
    table.show(v === 'expressions');
    given.show(v === 'inputs');
    yaml.show(v === 'yaml');
    if (v === 'steps') showPart();
    act.update(chosen());
  }

  function showPart() {
    const n = chosen();
    parts.show(n ? n.path : '');
    stages.mark(n ? n.path : '');
    if (!n) return;
    write(panelName, model.title(n));
    panelStatus.update(n.status);
    panelTook.update(n.started_at, n.ended_at);
    write(panelReason, n.reason || '');
    set(panelReason, { hidden: !n.reason });
    const key = model.logKey(n);
    const tab = key && (q.get('tab') || (n.kind === 'step' ? 'log' : '')) === 'log' ? 'log' : 'details';
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
      if (model.run) show();
    },
    close() {
      clearTimeout(again);
      source.close();
      time.close();
      log.close();
      all.close();
    },
  };
}
