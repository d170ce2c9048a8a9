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
      n.artifact ? section(w.artifact, h('pre', { class: 'yaml', tabindex: 0, 'aria-label': w.artifact }, decoded(n.artifact))) : null,
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
    fill(el, with_.length ? with_.map(n => section(model.title(n), expressionTable(n.evaluated))) : h('p', { class: 'sub' }, t.run.noExpressions));
  } };
}

/** The result of tests: the numbers, and what failed. @param {any} all */
function tests(all) {
  const failed = all.failures || all.failed_tests || [];
  const numbers = Object.entries(all).filter(([, v]) => typeof v === 'number').map(([k, v]) => [k.replaceAll('_', ' '), v]);
  return h('div', {}, facts(/** @type {any} */ (numbers)), Array.isArray(failed) && failed.length ? h('ul', { class: 'results' }, failed.map(f => h('li', { class: 'problem' }, typeof f === 'string' ? f : [f.suite, f.class, f.name, f.message].filter(Boolean).join(' · ')))) : null);
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
