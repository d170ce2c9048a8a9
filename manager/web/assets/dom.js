// Elements of the page. Data becomes text nodes and attribute values only: nothing parses it as markup.

/** @typedef {Node|string|number|null|undefined|false|Child[]} Child */

// The addresses that a link may have: other addresses could run a script or leave the page.
const ADDRESS = /^(#|logs\/|api\/|blob:|signin(\?|$))/;

/**
 * Creates an element. Properties are attributes; `on` has listeners, and values that are null or false are left out.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...Child} children
 * @returns {any} the element
 */
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  set(el, props || {});
  append(el, children);
  return el;
}

/** Sets attributes and listeners. @param {Element} el @param {Record<string, any>} props */
export function set(el, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name === 'on') {
      for (const [type, fn] of Object.entries(value)) el.addEventListener(type, fn);
    } else if (value === null || value === undefined || value === false) {
      el.removeAttribute(name);
    } else {
      if (name === 'href' && !ADDRESS.test(value)) throw new Error('not an address of the page');
      const text = value === true ? '' : String(value);
      if (el.getAttribute(name) !== text) el.setAttribute(name, text);
    }
  }
}

/** @param {Element} el @param {Child[]} children */
function append(el, children) {
  for (const c of children) {
    if (Array.isArray(c)) append(el, c);
    else if (c instanceof Node) el.append(c);
    else if (c !== null && c !== undefined && c !== false) el.append(document.createTextNode(String(c)));
  }
}

/** Replaces the content of an element. @param {Element} el @param {...Child} children */
export function fill(el, ...children) {
  el.replaceChildren();
  append(el, children);
}

/** Sets the text of an element if it differs. @param {Element} el @param {any} text */
export function write(el, text) {
  const s = text === null || text === undefined ? '' : String(text);
  if (el.textContent !== s) el.textContent = s;
}

/**
 * Makes the children of an element follow a list. An item that stays keeps its element, with its focus and its place.
 * @template T
 * @param {any} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => {el: Element, update?: (item: T) => void}} create
 */
export function keyed(parent, items, key, create) {
  const known = parent.keyed || (parent.keyed = new Map());
  const wanted = new Set(items.map(key));
  for (const [k, part] of known) {
    if (!wanted.has(k)) {
      part.el.remove();
      known.delete(k);
    }
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let part = known.get(k);
    if (!part) {
      part = create(item);
      known.set(k, part);
    }
    if (part.update) part.update(item);
    if (part.el === next) next = next.nextElementSibling;
    else parent.insertBefore(part.el, next);
  }
}

const SVG = 'http://www.w3.org/2000/svg';

/** Creates an icon. It is hidden from screen readers: words say the same. @param {string} shape @param {string} [name] */
export function icon(shape, name = '') {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'icon ' + name);
  svg.setAttribute('aria-hidden', 'true');
  const p = document.createElementNS(SVG, 'path');
  p.setAttribute('d', shape);
  svg.append(p);
  return svg;
}

/** Returns the address of a view of the page. @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const v of Array.isArray(value) ? value : [value]) {
      if (v !== undefined && v !== null && v !== '') q.append(name, String(v));
    }
  }
  const text = q.toString();
  return '#/' + path.split('/').map(encodeURIComponent).join('/') + (text ? '?' + text : '');
}
