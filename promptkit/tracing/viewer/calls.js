/*
 * The arguments of tool calls as they are shown: edits as lines, long texts as blocks, and the rest as JSON. Nothing here uses the document.
 */

const MOST_COMPARED = 250; // lines of the old and of the new text that are compared line by line
const AROUND = 3; // equal lines that are shown beside those that differ
const OLD = /^old(_?(string|str|text|content))?$/i;
const REMOVED = { '-': 'removed', '+': 'added', '@': 'place', '*': 'place' };

/* The pieces of the arguments: `inline` is one text, `lines` an edit, `text` a block; the last two have the name of their argument. */
function callPieces(args) {
  let values;
  try {
    values = JSON.parse(args);
  } catch {
    return [patchOf('', args) || { inline: args }];
  }
  if (values === null || typeof values !== 'object' || Array.isArray(values)) return [{ inline: args }];
  const blocks = [];
  const rest = {};
  for (const [name, value] of Object.entries(values)) {
    const found = editOf(name, values) || editsOf(name, value) || patchOf(name, value) || (typeof value === 'string' && value.trim().includes('\n') && { name, text: value });
    if (found) blocks.push(found);
    else if (!isNewText(name, values)) rest[name] = value;
  }
  if (!blocks.length) return [{ inline: args }];
  return [...(Object.keys(rest).length ? [{ inline: JSON.stringify(rest) }] : []), ...blocks];
}

/* The name of the argument with the new text, for that with the old one. */
function newNameOf(name) {
  return name.replace(/^old/, 'new').replace(/^Old/, 'New').replace(/^OLD/, 'NEW');
}

function editOf(name, values) {
  const next = newNameOf(name);
  return OLD.test(name) && typeof values[name] === 'string' && typeof values[next] === 'string' ? { name: '', lines: compareLines(values[name], values[next]) } : null;
}

function isNewText(name, values) {
  return Object.keys(values).some((other) => OLD.test(other) && newNameOf(other) === name && editOf(other, values));
}

/* Several edits in one call. */
function editsOf(name, value) {
  if (!Array.isArray(value) || !value.length) return null;
  const edits = value.map((each) => (each && typeof each === 'object' ? Object.keys(each).map((key) => editOf(key, each)).find(Boolean) : null));
  if (!edits.every(Boolean)) return null;
  return { name: '', lines: edits.flatMap((each, at) => (at ? [['place', '⋯'], ...each.lines] : each.lines)) };
}

/* A patch, by the first characters of its lines. */
function patchOf(name, value) {
  if (typeof value !== 'string' || !/^(\*\*\* Begin Patch|diff --git |--- \S)/m.test(value) || !/^[-+]/m.test(value)) return null;
  return { name, lines: value.replace(/\n$/, '').split('\n').map((line) => [REMOVED[line[0]] || 'same', line[0] in REMOVED && line[0] !== '@' && line[0] !== '*' ? line.slice(1) : line]) };
}

/* The lines of two texts: `[kind, line]`, where the kind is `same`, `removed`, `added` or `place`. */
function compareLines(before, after) {
  const [one, other] = [before, after].map((text) => (text === '' ? [] : text.split('\n')));
  const most = Math.min(one.length, other.length);
  let start = 0;
  while (start < most && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < most - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const inner = alignLines(one.slice(start, one.length - end), other.slice(start, other.length - end));
  return foldSame([...one.slice(0, start).map((line) => ['same', line]), ...inner, ...one.slice(one.length - end).map((line) => ['same', line])]);
}

/* The longest common lines, where they are few enough to look for. */
function alignLines(one, other) {
  const all = [...one.map((line) => ['removed', line]), ...other.map((line) => ['added', line])];
  if (!one.length || !other.length || one.length > MOST_COMPARED || other.length > MOST_COMPARED) return all;
  const width = other.length + 1;
  const longest = new Uint16Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = one[i] === other[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      lines.push(['same', one[i]]);
      [i, j] = [i + 1, j + 1];
    } else if (j === other.length || (i < one.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      lines.push(['removed', one[i]]);
      i += 1;
    } else {
      lines.push(['added', other[j]]);
      j += 1;
    }
  }
  return lines;
}

/* Equal lines far from those that differ become one line that counts them. */
function foldSame(lines) {
  const near = lines.map(() => false);
  lines.forEach(([kind], at) => {
    if (kind !== 'same') near.fill(true, Math.max(0, at - AROUND), at + AROUND + 1);
  });
  const shown = [];
  for (let at = 0; at < lines.length; ) {
    let end = at;
    while (end < lines.length && !near[end]) end += 1;
    if (end - at > 1) shown.push(['place', `⋯ ${end - at} equal lines`]);
    else if (end > at) shown.push(lines[at]);
    if (end < lines.length) shown.push(lines[end]);
    at = end + 1;
  }
  return shown;
}

/* The text of a call's arguments as it is shown, for the search. */
function callText(args) {
  return callPieces(args)
    .map((piece) => piece.inline ?? piece.text ?? piece.lines.map(([, line]) => line).join('\n'))
    .join('\n');
}
