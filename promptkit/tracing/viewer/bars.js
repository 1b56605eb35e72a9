/*
 * Bars: the position of an element's tokens within the prompt, and which of them are kept. Kept is solid, dropped is an outline.
 */

const ROLES = ['system', 'user', 'assistant', 'tool'];

class Bars {
  constructor(view) {
    this.view = view;
    this.colours = null;
    this.roles = rolesOf(view.record);
    this.from = 0; // the range of tokens that the width of a bar shows
    this.to = Math.max(1, view.record.total);
  }

  /* Let bars show the range of this element; the root shows the whole prompt. */
  zoom(id) {
    const { offset, end } = this.view.record;
    this.from = offset[id];
    this.to = Math.max(this.from + 1, offset[end[id]]);
    this.view.zoomed = id;
  }

  /* Forget the colours after a change of theme. */
  forget() {
    this.colours = null;
  }

  /* For each pixel of a bar of this width: its tokens, its kept tokens, their role. */
  measure(width) {
    const { record, state } = this.view;
    const { offset, since, until, tokens, count } = record;
    const all = new Float32Array(width);
    const kept = new Float32Array(width);
    const role = new Uint8Array(width);
    const scale = width / (this.to - this.from);
    for (let id = 0; id < count; id += 1) {
      if (tokens[id] === 0 || offset[id + 1] <= this.from || offset[id] >= this.to) continue;
      const is = since[id] <= state && state <= until[id];
      let left = Math.max(0, (offset[id] - this.from) * scale);
      const right = Math.min(width, (offset[id + 1] - this.from) * scale);
      for (let pixel = Math.floor(left); pixel < right; pixel += 1) {
        const part = Math.min(right, pixel + 1) - left;
        if (part > all[pixel] / 2) role[pixel] = this.roles[id];
        all[pixel] += part;
        if (is) kept[pixel] += part;
        left = pixel + 1;
      }
    }
    this.pixels = { width, all, kept, role };
  }

  palette() {
    if (!this.colours) {
      const style = getComputedStyle(document.documentElement);
      const read = (name) => style.getPropertyValue(name).trim();
      this.colours = ROLES.map((role) => ({ solid: read(`--${role}`), faint: read(`--${role}-faint`) }));
      this.colours.push({ solid: read('--muted'), faint: read('--line') });
    }
    return this.colours;
  }

  /* The bar of an element, `height` pixels high. Call `measure` before. */
  of(id, height) {
    const { record, sums } = this.view;
    const bar = el('span', { class: 'bar', 'aria-hidden': 'true' });
    const [start, stop] = [record.offset[id], record.offset[record.end[id]]];
    const { width } = this.pixels;
    const scale = width / (this.to - this.from);
    const left = Math.max(0, (start - this.from) * scale);
    const right = Math.min(width, (stop - this.from) * scale);
    if (start === stop || right <= left) return bar;
    const wide = Math.max(2, right - left);
    const at = Math.max(0, Math.min(left, width - wide));
    const kept = sums[record.end[id]] - sums[id];
    const plain = this.roles[id] < ROLES.length || wide < 3; // of one colour: draw it without a canvas, which is slow
    if (plain && (kept === 0 || kept === stop - start)) {
      const piece = el('i', { class: `${ROLES[this.roles[id]] || 'mixed'}${kept ? '' : ' gone'}` });
      piece.style.left = `${at}px`;
      piece.style.width = `${wide}px`;
      bar.append(piece);
    } else {
      const canvas = el('canvas', { 'data-id': id });
      this.draw(canvas, id, height);
      bar.append(canvas);
    }
    return bar;
  }

  /* Draw the part of the bar that belongs to an element. */
  draw(canvas, id, height) {
    const { record, sums } = this.view;
    const { width } = this.pixels;
    const scale = width / (this.to - this.from);
    const from = Math.max(0, Math.floor((record.offset[id] - this.from) * scale));
    const to = Math.min(width, Math.ceil((record.offset[record.end[id]] - this.from) * scale));
    this.slice(sized(canvas, width, height), from, to, height, sums[record.end[id]] === sums[id]);
  }

  /* Draw each pixel as high as its kept share. `gone`: nothing is kept, even if other elements share a pixel. */
  slice(context, from, to, height, gone) {
    const { all, kept, role, width } = this.pixels;
    const palette = this.palette();
    const high = (pixel) => (gone || !all[pixel] ? 0 : Math.round((height * kept[pixel]) / all[pixel]));
    let start = from;
    for (let pixel = from; pixel < Math.min(to, width); pixel = start) {
      const share = high(pixel);
      const same = (other) => role[other] === role[pixel] && high(other) === share;
      start = pixel + 1;
      while (start < Math.min(to, width) && same(start)) start += 1;
      const colour = palette[role[pixel]];
      if (share < height) outline(context, pixel, start - pixel, height, colour);
      if (share > 0) {
        context.fillStyle = colour.solid;
        context.fillRect(pixel, height - share, start - pixel, share);
      }
    }
  }
}

/* For each item, the index of the role of the message around it or of all messages in it; ROLES.length if there is no such role. */
function rolesOf(record) {
  const { parent, count } = record;
  const [none, mixed] = [255, ROLES.length];
  const roles = new Uint8Array(count).fill(none);
  for (let id = 1; id < count; id += 1) roles[id] = record.role[id] ? ROLES.indexOf(record.role[id]) : roles[parent[id]];
  for (let id = count - 1; id > 0; id -= 1) {
    const above = parent[id];
    if (messageAround(record, above) >= 0 || roles[id] === none) continue;
    if (roles[above] === none) roles[above] = roles[id];
    else if (roles[above] !== roles[id]) roles[above] = mixed;
  }
  return roles.map((role) => (role === none ? mixed : role));
}

function outline(context, left, width, height, { solid, faint }) {
  context.fillStyle = faint;
  context.fillRect(left, 0, width, height);
  context.fillStyle = solid;
  context.fillRect(left, height - 1, width, 1);
}
