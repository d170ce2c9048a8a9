// Parts that several views use: notices, filters, tabs and dialogs.
import { fill, h, set, write } from './dom.js';
import { t } from './texts.js';

/** The place for the text of a list without rows. */
export function notice() {
  const el = h('div', { class: 'notice', role: 'status' });
  const show = (/** @type {string} */ kind, ...children) => {
    set(el, { 'data-kind': kind });
    fill(el, ...children);
  };
  return {
    el,
    loading: () => show('loading', h('p', {}, t.loading)),
    clear: () => { if (el.dataset.kind) show(''); },
    empty: (/** @type {string} */ text, /** @type {string} */ hint) => show('empty', h('p', { class: 'strong' }, text), hint ? h('p', {}, hint) : null),
    failed: (/** @type {Error} */ err, /** @type {(() => void)|null} */ again) =>
      show('failed', h('p', {}, err.message), again ? h('button', { type: 'button', on: { click: again } }, t.again) : null),
  };
}

/**
 * Fields that change the address as soon as they change.
 * @param {{name: string, label: string, type?: string, hint?: string, options?: string[], word?: (s: string) => string}[]} fields
 * @param {(values: Record<string, string>) => void} changed
 */
export function filters(fields, changed) {
  let timer = 0;
  const inputs = fields.map(f => {
    const id = 'filter-' + f.name;
    const input = f.options
      ? h('select', { id, name: f.name }, f.options.map(o => h('option', { value: o }, f.word ? f.word(o) : o)))
      : h('input', { id, name: f.name, type: f.type || 'text', placeholder: f.hint || null, spellcheck: 'false', autocomplete: 'off' });
    return { input, el: h('div', { class: 'field' }, h('label', { for: id }, f.label), input) };
  });
  const values = () => Object.fromEntries(inputs.map(i => [i.input.name, i.input.value.trim()]));
  const send = () => { clearTimeout(timer); if (el.isConnected) changed(values()); }; // another view may be open by now
  const el = h('form', { class: 'filters', role: 'search', 'aria-label': t.filter, on: {
    submit: (/** @type {Event} */ e) => { e.preventDefault(); send(); },
    input: () => { clearTimeout(timer); timer = window.setTimeout(send, 300); },
  } }, inputs.map(i => i.el));
  return {
    el,
    /** @param {Record<string, string>} now */
    show(now) {
      for (const { input } of inputs) if (document.activeElement !== input) input.value = now[input.name] || '';
    },
  };
}

/**
 * Tabs, as links: the chosen one is in the address.
 * @param {string} label @param {{name: string, text: string}[]} all @param {(name: string) => string} href
 */
export function tabs(label, all, href) {
  const links = all.map(tab => h('a', { 'data-tab': tab.name }, tab.text));
  const el = h('nav', { class: 'tabs', 'aria-label': label }, links);
  return { el, update: (/** @type {string} */ chosen) => {
    for (const a of links) set(a, { href: href(a.dataset.tab), 'aria-current': a.dataset.tab === chosen ? 'true' : null });
  } };
}

/**
 * Asks in a dialog. Returns the values of its fields, or null.
 * @param {{title: string, text?: string, fields?: any[], go: string, danger?: boolean}} o
 * @returns {Promise<Record<string, string>|null>}
 */
export function ask({ title, text, fields = [], go, danger }) {
  return new Promise(resolve => {
    let result = null;
    const inputs = fields.map(f => {
      const id = 'ask-' + f.name;
      const input = f.options ? h('select', { id, name: f.name }, f.options.map((/** @type {string} */ o) => h('option', { value: o, selected: o === f.value }, o)))
        : h('input', { id, name: f.name, value: f.value || null, maxlength: f.max || 2000, autocomplete: 'off' });
      return { name: f.name, input, el: h('div', { class: 'field' }, h('label', { for: id }, f.label), f.help ? h('p', { class: 'help' }, f.help) : null, input) };
    });
    const form = h('form', { on: { submit: (/** @type {Event} */ e) => {
      e.preventDefault();
      result = Object.fromEntries(inputs.map(i => [i.name, i.input.value]));
      dialog.close();
    } } }, h('h2', { id: 'ask-title' }, title), text ? h('p', {}, text) : null, inputs.map(i => i.el),
    h('div', { class: 'buttons' },
      h('button', { type: 'button', on: { click: () => dialog.close() } }, t.run.cancel),
      h('button', { class: danger ? 'danger' : 'primary' }, go)));
    const dialog = h('dialog', { 'aria-labelledby': 'ask-title', on: { close: () => { dialog.remove(); resolve(result); } } }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A place for the outcome of an action. */
export function outcome() {
  const el = h('p', { class: 'outcome', role: 'alert' });
  return {
    el,
    clear: () => write(el, ''),
    /** Runs an action and shows its error. @param {() => Promise<any>} action */
    async of(action) {
      write(el, '');
      try {
        return await action();
      } catch (err) {
        write(el, err.message);
        return undefined;
      }
    },
  };
}

/** A list of names and values. @param {[string, any][]} pairs */
export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(([, v]) => v !== '' && v !== null && v !== undefined).map(([k, v]) => [h('dt', {}, k), h('dd', {}, v)]));
}

/** A titled part of a view. @param {string} title @param {any} body @param {string} [level] of the heading */
export const section = (title, body, level = 'h3') => h('section', {}, h(level, {}, title), body);

/** A table of names and values. @param {[string, any][]} list */
export const pairs = list => h('div', { class: 'scroll' }, h('table', { class: 'data' }, h('tbody', {}, list.map(([k, v]) => h('tr', {}, h('th', { scope: 'row' }, k), h('td', {}, h('code', {}, v)))))));

/** The head of a table. @param {string[]} names */
export const header = names => h('thead', {}, h('tr', {}, names.map(n => h('th', { scope: 'col' }, n))));
