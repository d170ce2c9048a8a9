// Calls of the manager's API, by the handler of the page. All addresses are relative to the page.
import { setClock } from './time.js';
import { t } from './texts.js';

/** An answer that is no success. */
export class Failure extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Sent to the window when the session is no longer valid. */
export const SIGNED_OUT = 'page-signed-out';

/**
 * Makes a call and returns its JSON, its text, or null.
 * @param {string} method
 * @param {string} path relative to the page
 * @param {any} [body]
 * @param {AbortSignal} [signal]
 */
export async function call(method, path, body, signal) {
  const headers = { 'Dlite-Page': '1' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (err) {
    if (signal && signal.aborted) throw err;
    throw new Failure(0, t.unreachable);
  }
  setClock(answer.headers.get('Date'));
  if (!answer.ok) throw await failureOf(answer);
  const type = answer.headers.get('Content-Type') || '';
  if (answer.status === 204) return null;
  return type.startsWith('application/json') ? answer.json() : answer.text();
}

/** @param {Response} answer */
export async function failureOf(answer) {
  let message = '';
  try {
    const body = await answer.json();
    message = typeof body.error_msg === 'string' ? body.error_msg : '';
  } catch { /* the answer has no JSON: its status must do */ }
  if (answer.status === 401) window.dispatchEvent(new CustomEvent(SIGNED_OUT, { detail: message }));
  return new Failure(answer.status, message || `${answer.status} ${answer.statusText}`);
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => call('GET', path, undefined, signal);

/** @param {string} path @param {any} [body] */
export const post = (path, body) => call('POST', path, body === undefined ? {} : body);

/** Escapes a part of a path. @param {string} s */
export const part = s => encodeURIComponent(s);

/** Builds a query from values that are not empty. @param {Record<string, any>} values */
export function query(values) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const v of Array.isArray(value) ? value : [value]) {
      if (v !== undefined && v !== null && v !== '') q.append(name, String(v));
    }
  }
  const text = q.toString();
  return text ? '?' + text : '';
}
