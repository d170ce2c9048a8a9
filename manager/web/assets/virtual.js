// A list that draws only the rows that can be seen.
import { h } from './dom.js';

const AROUND = 12;

/**
 * @param {object} o
 * @param {any} o.view the element that scrolls
 * @param {number} o.height of a row in pixels
 * @param {() => {el: any, show: (row: number) => void}} o.create makes an element for any row
 * @param {() => number} o.count
 */
export function virtual({ view, height, create, count }) {
  const space = h('div', { class: 'space', role: 'presentation' });
  view.append(space);
  /** @type {{el: any, show: (row: number) => void, row: number, stale: boolean}[]} */
  const pool = [];
  let frame = 0;

  function draw() {
    frame = 0;
    const n = count();
    space.style.height = `${n * height}px`;
    const first = Math.max(0, Math.floor(view.scrollTop / height) - AROUND);
    const last = Math.min(n - 1, Math.ceil((view.scrollTop + view.clientHeight) / height) + AROUND);
    while (pool.length < last - first + 1) {
      const part = { ...create(), row: -1, stale: true };
      part.el.style.position = 'absolute';
      space.append(part.el);
      pool.push(part);
    }
    // Row r is always drawn by the same element, so rows that stay in view are not touched.
    for (let i = 0; i < pool.length; i++) {
      const offset = ((i - first) % pool.length + pool.length) % pool.length;
      const row = first + offset;
      const part = pool[i];
      if (row > last) {
        if (part.row !== -1) part.el.hidden = true;
        part.row = -1;
        continue;
      }
      if (part.row !== row || part.stale) {
        part.show(row);
        part.el.style.top = `${row * height}px`;
        part.el.hidden = false;
        part.row = row;
        part.stale = false;
      }
    }
  }

  /** Draws in the next frame. @param {boolean} [all] also rows that have not moved */
  function update(all = true) {
    if (all) for (const part of pool) part.stale = true;
    if (!frame) frame = requestAnimationFrame(draw);
  }

  const size = new ResizeObserver(() => update(false));
  size.observe(view);
  view.addEventListener('scroll', () => update(false), { passive: true });

  return {
    space, update, draw,
    /** Scrolls until a row is in the middle of the view. @param {number} row */
    show(row) {
      draw();
      const top = row * height;
      if (top < view.scrollTop || top + height > view.scrollTop + view.clientHeight) view.scrollTop = Math.max(0, top - view.clientHeight / 3);
      update(false);
    },
    /** Scrolls to the end. */
    bottom() {
      space.style.height = `${count() * height}px`;
      view.scrollTop = view.scrollHeight;
      update(false);
    },
    close() {
      size.disconnect();
      cancelAnimationFrame(frame);
    },
  };
}
