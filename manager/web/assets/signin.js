// Signing in at the provider, or with a token. The token goes to the handler once, and no script keeps it.
import { call } from './api.js';
import { h, set, write } from './dom.js';
import { t } from './texts.js';

/** Where the view is stored while the user is at the provider. */
export const PLACE = 'place';

/** @param {string} why a message, or empty @param {string} provider its name, or empty @param {(session: any) => void} done */
export function signIn(why, provider, done) {
  const account = h('input', { id: 'account', name: 'account', autocomplete: 'username', required: true, maxlength: 256, spellcheck: 'false', autocapitalize: 'none' });
  const token = h('input', { id: 'token', name: 'token', type: 'password', autocomplete: 'current-password', required: true, maxlength: 2048, 'aria-describedby': 'token-help' });
  const role = h('select', { id: 'role' }, Object.keys(t.signIn.roles).map(r => h('option', { value: r }, t.signIn.roles[r])));
  const problem = h('p', { class: 'problem', role: 'alert' }, why);
  const go = h('button', { class: 'primary' }, t.signIn.go);
  const form = h('form', { class: 'card', on: { submit } },
    h('h1', {}, t.signIn.title), problem,
    provider ? [h('a', { class: 'button primary', href: 'signin', on: { click: () => sessionStorage.setItem(PLACE, location.hash) } }, t.signIn.at(provider)), h('h2', {}, t.signIn.or)] : null,
    h('label', { for: 'account' }, t.signIn.account), account,
    h('label', { for: 'token' }, t.signIn.token), token, h('p', { class: 'help', id: 'token-help' }, t.signIn.help),
    h('label', { for: 'role' }, t.signIn.role), role, go);

  /** @param {Event} e */
  async function submit(e) {
    e.preventDefault();
    set(go, { disabled: true });
    write(go, t.signIn.busy);
    write(problem, '');
    try {
      const session = await call('POST', 'session', { account: account.value.trim(), token: token.value.trim(), role: role.value });
      token.value = '';
      done(session);
    } catch (err) {
      write(problem, err.message);
      set(go, { disabled: false });
      write(go, t.signIn.go);
      token.focus();
    }
  }

  queueMicrotask(() => (form.querySelector('a') || account).focus());
  return h('div', { class: 'gate' }, h('header', { class: 'brand' }, t.product), h('main', {}, form));
}
