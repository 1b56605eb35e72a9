/*
 * What a render with another budget keeps and sends: the rules of the renderer, applied to a trace. Pure functions without a document.
 * A state is a number: in state k, the first k steps of the removal order have been applied.
 */

const NONE = -1;
const GHOST = -2; // marks a container without items

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

/* The ids of the messages that are sent, in document order. */
function messageIds(record, state) {
  const ids = [];
  for (const id of record.messages) if (isKept(record, id, state) && hasContent(record, id, state)) ids.push(id);
  return ids;
}

/* Whether a kept message has content. */
function hasContent(record, id, state) {
  if (isAtom(record, id) || record.role[id] === 'tool' || callsAt(record, id, state).length) return true;
  for (let at = id + 1; at < record.end[id]; at += 1) {
    if (isKept(record, at, state) && (record.part[at] || (record.text[at] && !record.blank[at]))) return true;
  }
  return false;
}

/* The tool calls of a message: [id, name, arguments]. */
function callsAt(record, id, state) {
  const calls = record.calls[id] || [];
  return calls.filter(([, , , until]) => until === null || state <= until).map(([call, name, args]) => [call, name, args]);
}

/* A message as it is sent: its content is a list of texts and of descriptions of other parts. */
function messageAt(record, id, state) {
  return {
    id,
    role: record.role[id],
    name: record.name[id] ?? null,
    callId: record.callId[id] ?? null,
    content: isAtom(record, id) ? [record.text[id]] : partsAt(record, id, state),
    calls: callsAt(record, id, state),
  };
}

function messagesAt(record, state) {
  return messageIds(record, state).map((id) => messageAt(record, id, state));
}

/* The content of a message: joined texts and other parts; of adjacent cache breakpoints, the last. */
function partsAt(record, id, state) {
  const parts = [];
  let run = [];
  let before = NONE;
  let nearest = NONE;
  const close = () => {
    if (run.length) parts.push(run.join(''));
    run = [];
    before = NONE;
  };
  for (let at = id + 1; at < record.end[id]; at += 1) {
    if (!isKept(record, at, state)) {
      at = record.end[at] - 1;
    } else if (record.kind[at] === 't') {
      if (record.text[at] !== '') {
        if (before !== NONE) run.push(separator(record, before, at, nearest));
        run.push(record.text[at]);
        before = at;
      }
      nearest = at; // an empty text adds no line break of its own
    } else if (record.kind[at] === 'p') {
      close();
      if (isCacheBreakpoint(record.part[at]) && isCacheBreakpoint(parts.at(-1))) parts.pop();
      parts.push(record.part[at]);
    } else if (record.end[at] === at + 1) {
      nearest = GHOST;
    }
  }
  close();
  return parts;
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
