/*
 * The content of messages as boxes: texts, tool calls, and parts other than text.
 */

const MOST = 20000; // characters of one text that are shown at first
const TALL = 24; // lines of one text that are shown at first

/* A text, and if it is long and not shown whole, its beginning and a button (`data-whole`) for the rest. */
function textBox(text, { key, kind, whole, most = MOST, tall = TALL }) {
  const lines = text.length > 200 ? countLines(text) : 1;
  const cut = !whole && (text.length > most || lines > tall);
  const box = el('pre', { class: `text ${kind}${cut ? ' cut' : ''}`, dir: 'auto' }, cut ? text.slice(0, most) : text);
  if (!cut) return box;
  const size = lines > tall ? counted(lines, 'line') : counted(text.length, 'character');
  return [box, el('button', { type: 'button', class: 'more', 'data-whole': key, 'data-hold': `more ${key}` }, `Show all ${size}`)];
}

function partBox(part) {
  return el('p', { class: part.kind === 'cache breakpoint' ? 'part breakpoint' : 'part' }, el('span', {}, partText(part)));
}

function callBox([id, name, args]) {
  return el(
    'div',
    { class: 'call' },
    el('span', { class: 'arrow', 'aria-hidden': 'true' }, '→'),
    el('span', { class: 'unseen' }, 'calls '),
    el('bdi', { class: 'function' }, name),
    el('code', { dir: 'auto' }, args),
    el('bdi', { class: 'of', title: 'tool call id' }, id),
  );
}

function countLines(text) {
  let lines = 1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines += 1;
  return lines;
}
