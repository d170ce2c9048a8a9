// The role of a session. The manager enforces it; the page disables the actions that it would refuse.
import { set } from './dom.js';
import { t } from './texts.js';

/** The roles, the weakest first. */
const ROLES = ['read', 'run', 'operate'];

/** @param {any} session @param {string} role */
export const may = (session, role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role);

/**
 * Disables a button if the session's role does not permit what it does. The button keeps its focus, so that the reason
 * can be read.
 * @param {any} session @param {string} role @param {any} button
 */
export function permit(session, role, button) {
  if (may(session, role)) return button;
  set(button, { 'aria-disabled': 'true', title: t.signIn.needs(t.signIn.roles[session.role], t.signIn.roles[role]) });
  button.addEventListener('click', (/** @type {Event} */ e) => { e.preventDefault(); e.stopImmediatePropagation(); }, true);
  return button;
}
