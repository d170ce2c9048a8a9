// The page begins here: it reads the session, and opens the view that the address names.
import { SIGNED_OUT, call, get } from './api.js';
import { address, fill, h, set, write } from './dom.js';
import { PLACE, signIn } from './signin.js';
import { t } from './texts.js';
import { delegates } from './delegates.js';
import { connectors, daemons, perpetual, upgrades } from './fleet.js';
import { limits, schedules, triggers } from './plans.js';
import { queue } from './queue.js';
import { run } from './run.js';
import { runs } from './runs.js';
import { stage } from './stage.js';
import { stages } from './stages.js';

/** @type {Record<string, (ctx: any) => any>} views of lists, and of one object */
const LISTS = { runs, stages, queue, delegates, schedules, triggers, limits, perpetual, daemons, connectors, upgrades };
const OBJECTS = { runs: run, stages: stage };

let session = null;
/** The name of the provider, or empty. */
let provider = '';
/** @type {any} */
let view = null;
let shown = '';

const main = h('main', { id: 'main', tabindex: -1 });
const menu = h('ul');
const live = h('span', { class: 'feed', role: 'status' });
const who = h('span', { class: 'who' });
const accounts = h('select', { 'aria-label': t.signIn.switch, hidden: true, on: { change: () => location.assign('signin?account=' + encodeURIComponent(accounts.value)) } });
const shell = h('div', { class: 'shell' },
  h('a', { class: 'skip', href: '#main', on: { click: e => { e.preventDefault(); main.focus(); } } }, t.skip),
  h('header', { class: 'top' },
    h('a', { class: 'brand', href: '#/runs' }, t.product),
    h('nav', { 'aria-label': t.menu }, menu),
    h('div', { class: 'session' }, live, who, accounts, h('button', { type: 'button', class: 'quiet', on: { click: signOut } }, t.signIn.out))),
  main);

for (const name of Object.keys(LISTS)) menu.append(h('li', {}, h('a', { href: '#/' + name, 'data-view': name }, t.views[name])));

async function start() {
  window.addEventListener('hashchange', route);
  window.addEventListener(SIGNED_OUT, e => { if (session) leave(e.detail || t.signIn.ended); });
  const found = await get('session');
  provider = found.provider || '';
  const place = sessionStorage.getItem(PLACE);
  sessionStorage.removeItem(PLACE);
  if (place && !location.hash) history.replaceState(null, '', place);
  if (found.account) {
    enter(found);
    tellProblem(found.problem);
  } else leave(found.problem || '');
}

/** @param {any} s */
function enter(s) {
  session = s;
  const name = s.user ? `${s.user} · ${s.account}` : s.account;
  write(who, s.role === 'operate' ? name : `${name} (${t.signIn.roles[s.role]})`);
  choose(s);
  document.body.replaceChildren(shell);
  shown = '';
  route();
}

/** Shows the accounts of the user. @param {any} s */
function choose(s) {
  const all = s.accounts || [];
  set(accounts, { hidden: all.length < 2 });
  fill(accounts, all.map((/** @type {string} */ a) => h('option', { value: a, selected: a === s.account }, a)));
}

/** @param {string} text */
function tellProblem(text) {
  if (text) document.body.prepend(h('p', { class: 'banner', role: 'alert' }, text));
}

/** @param {string} why */
function leave(why) {
  session = null;
  close();
  document.title = `${t.signIn.title} · ${t.product}`;
  document.body.replaceChildren(signIn(why, provider, enter));
}

async function signOut() {
  const next = await call('DELETE', 'session');
  if (next) location.assign(next.location); // the provider ends its session too, and sends the user back
  else leave('');
}

function close() {
  if (view) view.close();
  view = null;
  shown = '';
}

/** The parts of the address. */
function parse() {
  const [path, text] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map(p => {
    try { return decodeURIComponent(p); } catch { return p; }
  });
  return { name: parts[0] || 'runs', id: parts.slice(1).join('/'), query: new URLSearchParams(text || '') };
}

function route() {
  if (!session) return;
  const { name, id, query } = parse();
  const make = id ? OBJECTS[name] : LISTS[name];
  for (const a of menu.querySelectorAll('a')) set(a, { 'aria-current': a.dataset.view === name ? 'page' : null });
  const key = name + '/' + id;
  if (key !== shown) {
    const first = shown === '';
    close();
    shown = key;
    tell('');
    if (!make) {
      fill(main, h('h1', {}, t.notFound));
      return;
    }
    view = make({ id, session, tell, title, go });
    fill(main, view.el);
    window.scrollTo(0, 0);
    if (!first) main.focus({ preventScroll: true });
  }
  if (view) view.update(query);
}

/** Shows the state of the feed of the view. @param {string} state */
function tell(state) {
  write(live, t.feed[state] || '');
  set(live, { 'data-state': state });
}

/** @param {string} text */
function title(text) { document.title = text ? `${text} · ${t.product}` : t.product; }

/** Changes the address. @param {string} path @param {any} query @param {boolean} [instead] of the present one */
function go(path, query, instead) {
  const to = address(path, query);
  if (to === location.hash) return;
  if (!instead) {
    location.hash = to;
    return;
  }
  history.replaceState(null, '', to);
  route();
}

start().catch(err => leave(err.message));
