/*
 * What a render with another budget keeps and sends: the rules of the renderer, applied to a trace. Pure functions without a document.
 * A state is a number: in state k, the first k steps of the removal order have been applied.
 */

const NONE = -1;
const GHOST = -2; // marks a container without items
const WRITTEN = -1; // in place of a state: everything that was written, without fallbacks
const MANY = 400; // pieces of a message from which on dropped parts between its texts are not told apart

/* The state of a render with this budget; null if no state fits. The larger the budget, the smaller the state. */
function stateAt(record, budget) {
  const { costs, unfit } = record;
  const room = budget - record.reserved;
  let state = firstWithin(costs, 0, room);
  if (state === costs.length) return null;
  if (record.pruneStep) state = steppedFrom(record, state, room);
  while (state < costs.length && (unfit[state] || costs[state] > room)) state += 1;
  return state < costs.length ? state : null;
}

function firstWithin(costs, from, room) {
  let state = from;
  while (state < costs.length && costs[state] > room) state += 1;
  return state;
}

/* The state that removes the next multiple of prune_step tokens, or `first` if no state does. */
function steppedFrom(record, first, room) {
  const { costs, pruneStep } = record;
  const surplus = costs[0] - room;
  if (surplus <= 0) return first;
  const target = costs[0] - Math.ceil(surplus / pruneStep) * pruneStep;
  const rounded = firstWithin(costs, first, target);
  if (rounded === costs.length) return first;
  return firstWithin(costs, rounded, room);
}

/* The last state, after all possible removals. */
function lastState(record) {
  return record.costs.length - 1;
}

/* The smallest budget for which `test(state)` holds. It must then hold for all larger budgets. Null if it holds for none. */
function leastBudget(record, test) {
  const holds = (budget) => {
    const state = stateAt(record, budget);
    return state !== null && test(state);
  };
  let high = fullBudget(record);
  if (!holds(high)) return null;
  let low = -1;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (holds(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/* A budget that is large enough for every state. */
function fullBudget(record) {
  return record.costs.reduce((most, cost) => Math.max(most, cost), 0) + record.reserved;
}

/* The budgets that keep an item: `from` and `to` (null: all larger budgets); null if there are none. */
function budgetsOf(record, id) {
  const from = leastBudget(record, (state) => state <= record.until[id]);
  const gone = record.since[id] ? leastBudget(record, (state) => state < record.since[id]) : null;
  if (from === null || (gone !== null && gone <= from)) return null;
  return { from, to: gone === null ? null : gone - 1 };
}

/* The next larger or smaller budget that keeps other items; null if there is none. */
function nextBudget(record, budget, larger) {
  const state = stateAt(record, budget);
  const here = state === null ? Infinity : state;
  if (larger) return leastBudget(record, (other) => other < here);
  const least = leastBudget(record, (other) => other <= here);
  return state === null || least === null || least === 0 ? null : least - 1;
}

function isKept(record, id, state) {
  return record.since[id] <= state && state <= record.until[id];
}

function keptIds(record, state) {
  const ids = [];
  for (let id = 0; id < record.count; id += 1) if (isKept(record, id, state)) ids.push(id);
  return ids;
}

/* Writes sums of kept tokens into `sums` (length count + 1): `sums[end] - sums[id]` are the kept tokens of a subtree. */
function keptSums(record, state, sums) {
  const { since, until, tokens, count } = record;
  let sum = 0;
  for (let id = 0; id < count; id += 1) {
    sums[id] = sum;
    if (since[id] <= state && state <= until[id]) sum += tokens[id];
  }
  sums[count] = sum;
}

/* Writes sums of dropped tokens into `sums`, like `keptSums`. Fallbacks are not among them: they only replace what is dropped. */
function droppedSums(record, state, sums) {
  const { tokens, count } = record;
  let sum = 0;
  for (let id = 0; id < count; id += 1) {
    sums[id] = sum;
    if (isDropped(record, id, state)) sum += tokens[id];
  }
  sums[count] = sum;
}

/* Whether an item was written in the prompt and is not kept. An unused fallback is neither kept nor dropped. */
function isDropped(record, id, state) {
  return !record.fallback[id] && !isKept(record, id, state);
}

/* Whether only the texts directly in an element are left of it: what else it wrote is dropped. */
function onlyLiteralLeft(record, id, state) {
  if (!isKept(record, id, state) || isAtom(record, id)) return false;
  let [literal, lost] = [false, false];
  for (let at = id + 1; at < record.end[id]; at += 1) {
    if (record.blank[at] || !(record.text[at] || record.part[at])) continue;
    const there = isKept(record, at, state);
    const own = record.parent[at] === id && record.kind[at] === 't' && !record.own[at];
    if (there && !own) return false;
    literal = literal || there;
    lost = lost || (!own && isDropped(record, at, state));
  }
  return literal && lost;
}

/* The ids of the messages that are sent, in document order. */
function messageIds(record, state) {
  const ids = [];
  for (const id of record.messages) if (isKept(record, id, state) && hasContent(record, id, state)) ids.push(id);
  return ids;
}

/* The messages that are sent, and between them the runs of dropped messages, in document order: ids, and lists of ids. */
function messageRuns(record, state) {
  const rows = [];
  for (const id of record.messages) {
    if (isKept(record, id, state) && hasContent(record, id, state)) rows.push(id);
    else if (!record.fallback[id] && hasContent(record, id, WRITTEN)) {
      if (Array.isArray(rows.at(-1))) rows.at(-1).push(id);
      else rows.push([id]);
    }
  }
  return rows;
}

/* Whether an item is in a message in a state, or in the message as it was written. */
function isThere(record, id, state) {
  return state === WRITTEN ? !record.fallback[id] : isKept(record, id, state);
}

/* Whether a kept message has content. */
function hasContent(record, id, state) {
  if (isAtom(record, id) || record.role[id] === 'tool' || callsAt(record, id, state).length) return true;
  for (let at = id + 1; at < record.end[id]; at += 1) {
    if (isThere(record, at, state) && (record.part[at] || (record.text[at] && !record.blank[at]))) return true;
  }
  return false;
}

/* The tool calls of a message: [id, name, arguments]. */
function callsAt(record, id, state) {
  return callsWhere(record, id, (until) => state === WRITTEN || until === null || state <= until);
}

/* The tool calls that a message loses although it is kept. */
function droppedCallsAt(record, id, state) {
  return callsWhere(record, id, (until) => state !== WRITTEN && until !== null && until < state);
}

function callsWhere(record, id, test) {
  return (record.calls[id] || []).filter(([, , , until]) => test(until)).map(([call, name, args]) => [call, name, args]);
}

/* A message as it is sent, or in the state WRITTEN as it was written: its content is a list of texts and of descriptions of other parts. */
function messageAt(record, id, state) {
  return {
    id,
    role: record.role[id],
    name: record.name[id] ?? null,
    callId: record.callId[id] ?? null,
    content: partsAt(record, id, state),
    calls: callsAt(record, id, state),
  };
}

function messagesAt(record, state) {
  return messageIds(record, state).map((id) => messageAt(record, id, state));
}

/* The content of a message: joined texts and other parts; of adjacent cache breakpoints, the last. */
function partsAt(record, id, state) {
  const parts = [];
  for (const { text, joined, part } of piecesAt(record, id, state)) {
    if (part !== undefined) parts.push(part);
    else if (joined) parts.push(parts.pop() + text);
    else if (text !== undefined) parts.push(text);
  }
  return parts;
}

/*
 * The content of a message in pieces: { text, joined }, where a joined text continues the text before it, { part }, and between them
 * { dropped }, the ids of the items that a state lacks.
 */
function piecesAt(record, id, state) {
  if (isAtom(record, id)) return record.text[id] ? [{ text: record.text[id], joined: false }] : [];
  const pieces = [];
  let text = null; // the last text of the current part
  let run = null; // the dropped items since then
  let folded = null; // the last of such runs
  let last = null; // the last piece that is sent
  let before = NONE;
  let nearest = NONE;
  const addText = (at) => {
    const start = before === NONE ? '' : separator(record, before, at, nearest);
    if (text !== null && run === null) {
      text.text += start + record.text[at];
    } else {
      if (text !== null) text.text += start;
      text = last = { text: record.text[at], joined: text !== null };
      pieces.push(text);
      run = null;
    }
    before = at;
  };
  for (let at = id + 1; at < record.end[id]; at += 1) {
    if (!isThere(record, at, state)) {
      if (isDropped(record, at, state) && state !== WRITTEN && hasText(record, at)) {
        if (run === null && (folded === null || pieces.length < MANY)) pieces.push({ dropped: (run = folded = []) });
        folded.push(at);
      }
      at = record.end[at] - 1;
    } else if (record.kind[at] === 't') {
      if (record.text[at] !== '') addText(at);
      nearest = at; // an empty text adds no line break of its own
    } else if (record.kind[at] === 'p') {
      if (last !== null && isCacheBreakpoint(record.part[at]) && isCacheBreakpoint(last.part)) pieces.splice(pieces.lastIndexOf(last), 1);
      last = { part: record.part[at] };
      pieces.push(last);
      text = run = null;
      before = NONE;
    } else if (record.end[at] === at + 1) {
      nearest = GHOST;
    }
  }
  return pieces;
}

/* Whether an item has content in it that is not a fallback. */
function hasText(record, id) {
  for (let at = id; at < record.end[id]; at += 1) if (!record.fallback[at] && (record.text[at] || record.part[at])) return true;
  return false;
}

function isCacheBreakpoint(part) {
  return part !== undefined && part.kind === 'cache breakpoint';
}

/* The separator of two adjacent texts: a line break, or nothing. */
function separator(record, before, at, nearest) {
  const starts = record.starts[at];
  const breaks = starts === 'a' || record.ends[before] || (starts === 'f' && !followsText(record, nearest, at));
  return breaks && !record.text[before].endsWith('\n') ? '\n' : '';
}

/* Whether a container's first text follows directly after text of a container around it. */
function followsText(record, nearest, at) {
  if (nearest < 0 || record.own[nearest]) return false;
  const container = record.parent[nearest];
  let item = record.own[at] ? at : record.parent[at];
  for (;;) {
    const parent = record.parent[item];
    if (parent === NONE) return false;
    if (parent === container) return record.position[item] > record.position[nearest];
    if (record.role[parent]) return false;
    item = parent;
  }
}
