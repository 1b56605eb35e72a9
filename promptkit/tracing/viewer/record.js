/*
 * The trace as the rest of the page reads it: one array for each property, indexed by the id of an item.
 * Items are in document order, so the subtree of an item is `[id, end[id])`.
 */

const FOREVER = 2147483647; // the last state of an item that every state keeps
const HIGHEST = Number.MAX_SAFE_INTEGER; // the priority of an element without one
const LEVELS = 20; // segments that a long path shows at each end

function openRecord(data) {
  const { items, names } = data;
  const count = items.parent.length;
  const { end, position, depth, siblings } = shapeOf(items.parent);
  const placed = flags(items.placed, count);
  const label = items.label.map((name, id) => (placed[id] ? `${names[name]}[${position[id]}]` : names[name]));
  const kind = items.kind; // per item: c(ontainer), m(essage), t(ext), p(art)
  const tokens = Int32Array.from(items.tokens);
  const counts = data.counts;
  const record = {
    ...{ title: data.title, budget: data.budget, state: data.state, reserved: data.reserved, pruneStep: data.pruneStep },
    ...{ model: data.model, tokenizer: data.tokenizer, notes: data.notes, timings: data.timings, flexGroups: data.flexGroups.map(openFlexGroup) },
    ...{ counts, costs: data.costs || counts, unfit: flags(data.unfit, counts.length) },
    ...{ count, parent: Int32Array.from(items.parent), end, position, depth, siblings, label, kind, tokens },
    ...{ role: items.role, name: items.name, callId: items.callId, calls: items.calls, text: items.text, part: items.part },
    ...{ budgets: items.budget, used: items.used, limit: items.limit, reserve: items.reserve, seconds: items.seconds },
    ...{ blank: flags(items.blank, count), ends: flags(items.ends, count), own: flags(items.own, count), starts: items.starts },
    element: items.element.map((name) => names[name]),
    priority: Float64Array.from(items.priority, openPriority),
    shown: label.map((name, id) => items.named[id] ?? name), // in lists: the label that the element was given, or the last segment
    ...{ named: items.named, passesOn: flags(items.passesOn, count) },
    required: flags(items.required, count),
    fallback: flags(items.fallback, count),
    since: Int32Array.from({ length: count }, (_, id) => items.since[id] || 0),
    until: Int32Array.from(items.until, (state) => (state === null ? FOREVER : state)),
    removals: data.removals.map((fields, index) => openRemoval(fields, index, names)),
  };
  record.offset = offsetsOf(tokens); // offset[id]: the sum of the tokens of all items before it
  record.total = record.offset[count];
  record.messages = Int32Array.from(Array.from({ length: count }, (_, id) => id).filter((id) => kind[id] === 'm'));
  record.removalOf = removalsByItem(record);
  return record;
}

/* Derive from the parents: the ends of subtrees, the positions among siblings, the depths. */
function shapeOf(parents) {
  const count = parents.length;
  const end = new Int32Array(count);
  const position = new Int32Array(count);
  const depth = new Int32Array(count);
  const siblings = new Int32Array(count + 1); // per item, the number of its children
  for (let id = 0; id < count; id += 1) {
    const parent = parents[id];
    if (parent >= 0) {
      position[id] = siblings[parent];
      siblings[parent] += 1;
      depth[id] = depth[parent] + 1;
    }
  }
  for (let id = count - 1; id >= 0; id -= 1) {
    end[id] = Math.max(end[id], id + 1);
    if (parents[id] >= 0) end[parents[id]] = Math.max(end[parents[id]], end[id]);
  }
  return { end, position, depth, siblings };
}

function flags(ids, count) {
  const set = new Uint8Array(count);
  for (const id of ids) set[id] = 1;
  return set;
}

function offsetsOf(tokens) {
  const offset = new Float64Array(tokens.length + 1);
  for (let id = 0; id < tokens.length; id += 1) offset[id + 1] = offset[id] + tokens[id];
  return offset;
}

function openPriority(priority) {
  return priority === null ? HIGHEST : priority;
}

function openRemoval([step, item, call, priority, tokens, reason, partner], index, names) {
  return { order: index + 1, step, item, call, priority: openPriority(priority), tokens, reason: names[reason], partner };
}

function openFlexGroup([container, grow, available, reserved, plain, plainShare, plainUsed, members]) {
  const shares = members.map(([item, basis, budget, used]) => ({ item, basis, budget, used }));
  return { container, grow, available, reserved, plain, plainShare, plainUsed, members: shares };
}

/* For each item, the index of the removal that removes it or an ancestor, or -1. */
function removalsByItem(record) {
  const found = new Int32Array(record.count).fill(-1);
  record.removals.forEach((removal, index) => {
    if (removal.call === null) found[removal.item] = index;
  });
  for (let id = 1; id < record.count; id += 1) {
    const above = found[record.parent[id]];
    if (above >= 0 && (found[id] < 0 || record.removals[above].step < record.removals[found[id]].step)) found[id] = above;
  }
  return found;
}

/* The ids on the path to an item, without the root. */
function stepsTo(record, id) {
  const steps = [];
  for (let at = id; at > 0; at = record.parent[at]) steps.push(at);
  return steps.reverse();
}

/* The path as `rendered.removals` writes it; the middle of a very long path is left out. */
function pathOf(record, id) {
  const steps = stepsTo(record, id);
  const isLeaf = steps.length > 0 && (record.kind[id] === 't' || record.kind[id] === 'p' || isAtom(record, id));
  const last = isLeaf ? [record.label[steps.pop()]] : [];
  const labels = steps.map((step) => record.label[step]);
  const missing = labels.length - 2 * LEVELS;
  if (missing > 0) labels.splice(LEVELS, missing, `… ${missing.toLocaleString('en-US')} more …`);
  return [...labels, ...last].join(' > ');
}

/*
 * The ids on the path to an item that receipts show: from the innermost label on, without steps that only group and are an only child or
 * have one.
 */
function shownSteps(record, id) {
  const groups = (at) => record.passesOn[at] && record.named[at] === undefined;
  let last = id;
  while (last > 0 && groups(last) && record.siblings[last] === 1) last += 1; // it is what it passes on
  const steps = [];
  for (let at = last; at > 0; at = record.parent[at]) {
    const skipped = at !== last && groups(at) && (record.siblings[record.parent[at]] === 1 || record.siblings[at] === 1);
    if (!skipped) steps.push(at);
    if (record.named[at] !== undefined) break;
  }
  const [inner, group] = steps;
  const isGroup = steps.length === 2 && record.passesOn[group] && record.named[group] !== undefined;
  if (isGroup && record.siblings[group] === 1 && record.siblings[record.parent[inner]] === 1) steps.shift(); // it has the label of its group
  return steps.reverse();
}

/* The name of one step of such a path. An only child of something that is left out has the position of that. */
function shownName(record, id) {
  if (record.named[id] !== undefined) return record.named[id];
  let at = id;
  let above = record.parent[id];
  while (above > 0 && record.siblings[above] === 1 && record.passesOn[above] && record.named[above] === undefined) [at, above] = [above, record.parent[above]];
  const name = record.label[id].replace(/\[\d+\]$/, '');
  return at === id ? record.label[id] : record.siblings[above] > 1 ? `${name}[${record.position[at]}]` : name;
}

/* Whether an item is a message that consists of one text. */
function isAtom(record, id) {
  return record.kind[id] === 'm' && record.text[id] !== null;
}

/* The message that an item is or belongs to, or -1. */
function messageAround(record, id) {
  let at = id;
  while (at >= 0 && record.kind[at] !== 'm') at = record.parent[at];
  return at;
}
