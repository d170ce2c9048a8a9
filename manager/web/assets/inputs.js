// The inputs of a run: those that it began with, and those that it asked for.
import { get } from './api.js';
import { fill, h, set } from './dom.js';
import { notice, pairs, section } from './parts.js';
import { t } from './texts.js';

/** @param {string} run the path of the run's calls @param {import('./model.js').Model} model */
export function inputs(run, model) {
  const message = notice();
  const given = h('div'), asked = h('div');
  const el = h('section', { class: 'details', 'aria-label': t.run.inputs, hidden: true }, message.el, given, asked);
  let state = '', version = -1;

  async function load() {
    state = 'loading';
    message.loading();
    try {
      const all = (await get(run + '/inputs')).inputs;
      fill(given, all.length ? section(t.run.inputsGiven, pairs(all.map(i => [i.name, i.value])), 'h2') : null);
      state = all.length ? 'some' : 'none';
      message.clear();
      say();
    } catch (err) {
      state = '';
      message.failed(err, load);
    }
  }

  function say() {
    if (state === 'none' && !asked.firstChild) message.empty(t.run.noInputs, '');
    else if (state === 'none') message.clear();
  }

  return { el, show(/** @type {boolean} */ on) {
    set(el, { hidden: !on });
    if (!on) return;
    if (!state) load();
    if (version === model.version) return;
    version = model.version;
    const all = model.ordered().flatMap(n => (n.inputs || []).map((/** @type {any} */ i) => [`${model.title(n)} · ${i.field}`, i.given ? i.value : t.run.notGiven]));
    fill(asked, all.length ? section(t.run.inputsAsked, pairs(all), 'h2') : null);
    say();
  } };
}

/** The field of a dialog for an input: its default is filled in, and its permitted values are a list. @param {any} input */
export function fieldOf(input) {
  const of = (/** @type {RegExp} */ form) => form.exec(input.text)?.[1];
  const options = of(/\.(?:allowedValues|selectOneFrom)\(([^)]*)\)/)?.split(',').map(s => s.trim());
  return { name: input.field, label: input.field, help: input.text, value: input.value || of(/\.default\(([^)]*)\)/) || '', options, max: 100_000 };
}
