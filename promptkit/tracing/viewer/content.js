/*
 * The content of messages as boxes: texts, tool calls, and parts other than text. `mark` is a regular expression for the words of a search.
 */

const MOST = 20000; // characters of one text that are shown at first
const TALL = 24; // lines of one text that are shown at first

/* A text with the words of a search marked. */
function marked(text, mark) {
  if (!mark) return text;
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(mark)) {
    if (match.index > end) pieces.push(text.slice(end, match.index));
    pieces.push(el('mark', {}, match[0]));
    end = match.index + match[0].length;
  }
  return [...pieces, text.slice(end)];
}

/* A button that shows the whole of what is cut (`data-whole`), and says how often the words of the search are in it. */
function moreButton(size, key, text, mark) {
  const found = mark ? [...text.matchAll(mark)].length : 0;
  return el('button', { type: 'button', class: 'more', 'data-whole': key, 'data-hold': `more ${key}` }, `Show all ${size}${found ? ` · ${counted(found, 'match', 'matches')}` : ''}`);
}

/* A text, and if it is long and not shown whole, its beginning and a button for the rest. */
function textBox(text, { key, kind = '', whole, most = MOST, tall = TALL, mark }) {
  const lines = text.length > 200 ? countLines(text) : 1;
  const cut = !whole && (text.length > most || lines > tall);
  const box = el('pre', { class: `text ${kind}${cut ? ' cut' : ''}`, dir: 'auto' }, marked(cut ? text.slice(0, most) : text, mark));
  if (!cut) return box;
  return [box, moreButton(lines > tall ? counted(lines, 'line') : counted(text.length, 'character'), key, text, mark)];
}

/* A part other than text: its kind, with its text or with its facts. */
function partBox(part, options = {}) {
  if (part.text !== undefined) return el('div', { class: 'kind-box' }, chipOf(part.kind), textBox(part.text, { ...options, kind: 'part' }));
  if (CHIPS.has(part.kind)) return el('p', { class: 'part' }, chipOf(part.kind), part.bytes ? ` ${counted(part.bytes, 'byte')} that only the provider can read` : '');
  return el('p', { class: part.kind === 'cache breakpoint' ? 'part breakpoint' : 'part' }, el('span', {}, marked(partText(part), options.mark)));
}

const CHIPS = new Set(['error', 'thinking', 'developer']);

function chipOf(kind) {
  return el('span', { class: `kind-chip ${CHIPS.has(kind) ? kind : ''}` }, kind);
}

/* A tool call: its arguments, with edits as lines. `isWhole` says of a key whether all of its text is shown; `after` follows the call's id. */
function callBox([id, name, args], { key, isWhole = () => true, most = MOST, tall = TALL, mark, after } = {}) {
  const pieces = callPieces(args);
  const [{ inline }] = pieces;
  const blocks = pieces.map((piece, at) => {
    if (piece.inline !== undefined) return null;
    const inner = `${key}:${at}`;
    const whole = isWhole(inner);
    const box = piece.lines ? linesBox(piece.lines, { key: inner, whole, tall, mark }) : textBox(piece.text, { key: inner, whole, most, tall, mark });
    return el('div', { class: 'argument' }, piece.name && el('span', { class: 'of' }, piece.name), box);
  });
  const cut = inline !== undefined && !isWhole(key) && inline.length > most;
  return el(
    'div',
    { class: 'call' },
    el('span', { class: 'arrow', 'aria-hidden': 'true' }, '→'),
    el('span', { class: 'unseen' }, 'calls '),
    el('bdi', { class: 'function' }, marked(name, mark)),
    inline !== undefined && el('code', { dir: 'auto' }, marked(cut ? `${inline.slice(0, most)}…` : inline, mark)),
    cut && moreButton(counted(inline.length, 'character'), key, inline, mark),
    el('bdi', { class: 'of', title: 'tool call id' }, marked(id, mark)),
    after,
    blocks,
  );
}

const SIGNS = { removed: '−', added: '+', same: ' ', place: '' };

/* The lines of an edit. */
function linesBox(lines, { key, whole, tall, mark }) {
  const cut = !whole && lines.length > tall;
  const rows = (cut ? lines.slice(0, tall) : lines).map(([kind, line]) =>
    el('div', { class: kind }, el('span', { class: 'sign' }, SIGNS[kind]), kind === 'removed' || kind === 'added' ? el('span', { class: 'unseen' }, `${kind}: `) : null, el('span', { dir: 'auto' }, marked(line, mark))),
  );
  const text = cut ? lines.map(([, line]) => line).join('\n') : '';
  return [el('div', { class: 'edit text' }, rows), cut && moreButton(counted(lines.length, 'line'), key, text, mark)];
}

function countLines(text) {
  let lines = 1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines += 1;
  return lines;
}
