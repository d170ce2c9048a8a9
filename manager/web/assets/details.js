// The details of a part of a run: the reason of its status, with the values and expressions behind it.
import { fill, h, set } from './dom.js';
import { facts, header, pairs, section } from './parts.js';
import { badge } from './status.js';
import { t } from './texts.js';
import { clock, ms, span } from './time.js';

/** @param {import('./model.js').Model} model */
export function details(model) {
  const el = h('div', { class: 'details' });
  let shown = null;
  return { el, show(/** @type {any} */ n) {
    if (n === shown) return;
    shown = n;
    const w = t.run;
    fill(el,
      facts([
        [w.path, h('code', {}, n.path)], [w.type, [n.kind, n.type].filter(Boolean).join(' · ')], [w.attempt, n.attempt > 1 ? n.attempt : ''], [w.kind, n.failure_kind], [w.exit, n.exit_code],
        [w.began, clock(ms(n.started_at))], [w.finished, clock(ms(n.ended_at))], [w.stageId, n.stage_id ? h('code', {}, n.stage_id) : ''],
      ]),
      n.matrix ? section(w.matrix, pairs(Object.entries(n.matrix).map(([k, v]) => [k, typeof v === 'string' ? v : JSON.stringify(v)]))) : null,
      n.values && n.values.length ? section(w.values, pairs(n.values.map(v => [v.name, v.value]))) : null,
      n.outputs && Object.keys(n.outputs).length ? section(w.outputs, pairs(Object.entries(n.outputs))) : null,
      n.tests ? section(w.tests, tests(n.tests)) : null,
      n.artifact || n.artifact_bytes ? section(w.artifact, artifact(n)) : null,
      n.past && n.past.length ? section(w.attempts, h('table', { class: 'data' }, header([w.attempt, w.status, w.reason, w.began, w.finished]),
        h('tbody', {}, n.past.map(p => h('tr', {}, h('td', {}, p.attempt), h('td', {}, badge(p.status).el), h('td', {}, p.reason || ''), h('td', {}, clock(ms(p.started_at))), h('td', {}, span(ms(p.ended_at) - ms(p.started_at)))))))) : null,
      n.evaluated && n.evaluated.length ? section(w.evaluated, expressionTable(n.evaluated)) : null);
  } };
}

/** All expressions of a run. @param {import('./model.js').Model} model */
export function expressions(model) {
  const el = h('section', { class: 'details', 'aria-label': t.run.expressions, hidden: true });
  let version = -1;
  return { el, show(/** @type {boolean} */ on) {
    set(el, { hidden: !on });
    if (!on || version === model.version) return;
    version = model.version;
    const with_ = [...model.ordered(), ...model.made.values()].filter(n => n.evaluated && n.evaluated.length);
    fill(el, with_.length ? with_.map(n => section(model.title(n), expressionTable(n.evaluated), 'h2')) : h('p', { class: 'sub' }, t.run.noExpressions));
  } };
}

/** The tests and artifacts of all steps of a run. @param {import('./model.js').Model} model @param {(n: any) => string} href */
export function results(model, href) {
  const el = h('section', { class: 'details', 'aria-label': t.run.results, hidden: true });
  let version = -1;
  return { el, show(/** @type {boolean} */ on) {
    set(el, { hidden: !on });
    if (!on || version === model.version) return;
    version = model.version;
    const all = model.ordered().filter(n => n.tests || n.artifact || n.artifact_bytes);
    fill(el, all.length ? all.map(n => h('section', {}, h('h2', {}, h('a', { href: href(n) }, placeOf(model, n))),
      n.tests ? tests(n.tests) : null, n.artifact || n.artifact_bytes ? artifact(n) : null)) : h('p', { class: 'sub' }, t.run.noResults));
  } };
}

/** The stage and the step. @param {import('./model.js').Model} model @param {any} n */
function placeOf(model, n) {
  const stage = model.stageOf(n);
  return [stage ? model.title(stage) : '', model.title(n)].filter(Boolean).join(' · ');
}

/** The result of tests: the numbers, and what failed. @param {any} all */
function tests(all) {
  const failures = all.failures || [], bad = (all.failed || 0) + (all.errors || 0);
  return h('div', { class: 'tests' }, h('p', {}, t.run.testSum(all)),
    failures.length ? h('ul', { class: 'results' }, failures.map((/** @type {any} */ f) => h('li', {}, h('span', { class: 'problem' }, [f.suite, f.class, f.name].filter(Boolean).join(' · ')),
      f.message ? h('pre', {}, f.message) : null))) : null,
    bad > failures.length ? h('p', { class: 'sub' }, t.run.moreTests(bad - failures.length)) : null,
    (all.problems || []).map((/** @type {string} */ p) => h('p', { class: 'warn' }, p)));
}

/** What a step has published, in the form that plugins write, or its text. @param {any} n */
function artifact(n) {
  if (n.artifact_bytes) return h('p', { class: 'sub' }, t.run.largeArtifact(n.artifact_bytes));
  const text = decoded(n.artifact);
  const list = published(text);
  return list.length ? h('ul', { class: 'results' }, list.map(item => h('li', {}, h('code', {}, item))))
    : h('pre', { class: 'yaml', tabindex: 0, 'aria-label': t.run.artifact }, text);
}

/** The objects in the lists of an artifact file, a line for each. @param {string} text @returns {string[]} */
function published(text) {
  try {
    const { data } = JSON.parse(text);
    return Object.values(data).filter(Array.isArray).flat().map(o => Object.values(o).filter(v => typeof v === 'string').join(' · ')).filter(Boolean);
  } catch {
    return [];
  }
}

/** The text of an artifact file. @param {string} base64 */
function decoded(base64) {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(base64), c => c.charCodeAt(0)));
  } catch {
    return base64;
  }
}

/** @param {any[]} list */
function expressionTable(list) {
  const w = t.run;
  return h('div', { class: 'scroll' }, h('table', { class: 'data' }, header([w.field, w.text, w.value, w.source]),
    h('tbody', {}, list.map(e => h('tr', {}, h('td', {}, e.field || ''), h('td', {}, h('code', {}, e.text)),
      h('td', {}, e.error ? h('span', { class: 'problem' }, e.error) : h('code', {}, e.value)), h('td', {}, e.source || ''))))));
}
