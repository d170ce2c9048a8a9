// The role of a session, and buttons that cannot be used now. The manager enforces roles; the page disables the actions that it
// would refuse.
import { h, set, write } from './dom.js';
import { t } from './texts.js';

/** The roles, the weakest first. */
const ROLES = ['read', 'run', 'operate'];

/** @param {any} session @param {string} role */
export const may = (session, role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role);

/**
 * Disables a button if the session's role does not permit what it does.
 * @param {any} session @param {string} role @param {any} button
 */
export function permit(session, role, button) {
  if (!may(session, role)) block(button, t.signIn.needs(t.signIn.roles[session.role], t.signIn.roles[role]));
  return button;
}

const blocked = new WeakSet();
const hint = h('p', { class: 'hint', role: 'status' });

/**
 * Disables a button for a reason, or enables it if the reason is empty. The button keeps its focus, and a click or a touch shows
 * the reason.
 * @param {any} button @param {string} why
 */
export function block(button, why) {
  set(button, { 'aria-disabled': why ? 'true' : null, title: why || null });
  if (!why || blocked.has(button)) return;
  blocked.add(button);
  button.addEventListener('click', (/** @type {Event} */ e) => {
    if (!button.title) return;
    e.preventDefault();
    e.stopImmediatePropagation();
    write(hint, button.title);
    document.body.append(hint);
    document.addEventListener('click', () => hint.remove(), { once: true, capture: true });
  }, true);
}
