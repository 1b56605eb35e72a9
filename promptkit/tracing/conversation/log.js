/*
 * The log as the rest of the page reads it. Messages have numbers: those of the conversation come first, in order, and after them those
 * that requests show in place of them. What a request shows is a list of runs, `[first number, length, …]`. Nothing here uses the document.
 */

const ROLE_NAMES = { s: 'system', u: 'user', a: 'assistant', t: 'tool' };
const FRAME = 64; // requests from one whole list of runs to the next; those between are changes of the one before

function openLog(data) {
  const { messages } = data;
  const count = messages.role.length;
  const log = {
    ...{ title: data.title, model: data.model, window: data.window, limit: data.limit, branch: data.branch, branches: data.branches, bill: data.bill },
    ...{ length: data.length, count, parts: data.partNames, kind: messages.kind, content: messages.content, time: messages.time },
    ...{ entry: messages.entry, original: messages.original, covers: messages.covers, missed: messages.missed, name: messages.name, callId: messages.callId },
    ...{ calls: messages.calls, tokens: Int32Array.from(messages.tokens), role: Array.from(messages.role, (role) => ROLE_NAMES[role]) },
  };
  log.forms = new Map(); // for each message of the conversation the numbers of its changed forms
  for (const [form, original] of Object.entries(log.original)) log.forms.set(original, [...(log.forms.get(original) || []), Number(form)]);
  pairCalls(log);
  log.sources = data.logs.map(openSource);
  const replies = Int32Array.from(new Set(log.sources.flatMap((source) => [...source.reply]))).sort();
  log.steps = replies.length ? replies : Int32Array.of(log.length); // without a request there is one step, at which none was sent
  for (const source of log.sources) source.at = requestsByStep(log.steps, source.reply);
  return log;
}

function openSource(source) {
  const count = source.reply.length;
  return {
    ...{ name: source.name, price: source.price, count, time: source.time, cost: source.cost, checkpoints: source.checkpoints },
    ...{ changes: source.changes, differences: source.differences, frames: framesOf(source.changes), simulated: source.simulated },
    ...{ reply: Int32Array.from(source.reply), tokens: Int32Array.from(source.tokens), cached: Int32Array.from(source.cached) },
    ...{ written: Int32Array.from(source.written), output: Int32Array.from(source.output) },
    parts: source.parts.map((column) => Int32Array.from(column)),
  };
}

/*
 * Find out which result answers which call. `log.results` has the number of the result by the place of the call, `number:index`, and `log.callers`
 * for each result the number of the message with its call, and the tool's name. Ids may repeat: a result answers the newest call before it.
 */
function pairCalls(log) {
  log.results = new Map();
  log.callers = new Map();
  const open = new Map(); // calls without a result so far, by id
  for (let number = 0; number < log.length; number += 1) {
    (log.calls[number] || []).forEach(([id, name], index) => open.set(id, { number, index, name }));
    const call = log.role[number] === 'tool' ? open.get(log.callId[number]) : undefined;
    if (!call) continue;
    open.delete(log.callId[number]);
    log.callers.set(number, call);
    log.results.set(`${call.number}:${call.index}`, number);
  }
}

/* The message of the conversation that a message is or stands for in another form. */
function recordedOf(log, number) {
  return log.original[number] ?? number;
}

/* The name of the tool that a result comes from, or undefined. */
function toolOf(log, number) {
  return log.callers.get(recordedOf(log, number))?.name ?? log.name[number];
}

function isError(log, number) {
  return Array.isArray(log.content[number]) && log.content[number].some((part) => part.kind === 'error');
}

/* For each step the request of a source that was sent last until then; -1 before the first. */
function requestsByStep(steps, replies) {
  let at = -1;
  return Int32Array.from(steps, (reply) => {
    while (at + 1 < replies.length && replies[at + 1] <= reply) at += 1;
    return at;
  });
}

/* Add a run to a list, or lengthen the last one. */
function pushRun(runs, first, length) {
  const end = runs.length;
  if (end && runs[end - 2] + runs[end - 1] === first) runs[end - 1] += length;
  else runs.push(first, length);
}

/* The runs of a request, from those of the request before and the change. */
function changedRuns(before, change) {
  const runs = [];
  for (let at = 0; at < change.length; at += 2) {
    const [start, length] = [change[at], change[at + 1]];
    if (start < 0) pushRun(runs, -1 - start, length);
    else copyRuns(before, start, start + length, runs);
  }
  return runs;
}

/* Copy the messages from one place to another of a list of runs. */
function copyRuns(runs, from, to, into) {
  let place = 0;
  for (let at = 0; at < runs.length && place < to; at += 2) {
    const length = runs[at + 1];
    const [start, end] = [Math.max(from, place), Math.min(to, place + length)];
    if (start < end) pushRun(into, runs[at] + start - place, end - start);
    place += length;
  }
}

function framesOf(changes) {
  const frames = [];
  let runs = [];
  changes.forEach((change, at) => {
    runs = changedRuns(runs, change);
    if (at % FRAME === 0) frames.push(runs);
  });
  return frames;
}

/* What a request shows. */
function runsAt(source, request) {
  if (request < 0) return [];
  const frame = Math.floor(request / FRAME);
  let runs = source.frames[frame];
  for (let at = frame * FRAME + 1; at <= request; at += 1) runs = changedRuns(runs, source.changes[at]);
  return runs;
}

/* The place of a message after a change; -1 if it is not there. `place`: its place before. */
function placeAfter(change, place, number) {
  let found = -1;
  let offset = 0;
  for (let at = 0; at < change.length; at += 2) {
    const [start, length] = [change[at], change[at + 1]];
    const within = start < 0 ? number + start + 1 : place < 0 ? -1 : place - start;
    if (within >= 0 && within < length) found = offset + within;
    offset += length;
  }
  return found;
}

function numbersIn(runs) {
  const numbers = [];
  for (let at = 0; at < runs.length; at += 2) for (let number = runs[at]; number < runs[at] + runs[at + 1]; number += 1) numbers.push(number);
  return numbers;
}

function isIn(runs, number) {
  for (let at = 0; at < runs.length; at += 2) if (number >= runs[at] && number < runs[at] + runs[at + 1]) return true;
  return false;
}

/* The requests of a source that show a message, itself or changed, as ranges `[from, to)`. The last answer is remembered. */
function requestsShowing(log, source, number) {
  if (source.asked === number) return source.answer;
  const forms = [number, ...(log.forms.get(number) || [])];
  const ranges = [];
  let places = forms.map(() => -1);
  for (let request = 0; request < source.count; request += 1) {
    places = places.map((place, at) => placeAfter(source.changes[request], place, forms[at]));
    if (!places.some((place) => place >= 0)) continue;
    if (ranges.length && ranges.at(-1)[1] === request) ranges.at(-1)[1] += 1;
    else ranges.push([request, request + 1]);
  }
  source.asked = number;
  source.answer = ranges;
  return ranges;
}

/* The step at which a source sends a request. */
function stepOf(log, source, request) {
  let [low, high] = [0, log.steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (log.steps[middle] < source.reply[request]) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* All text of a message, for the search. */
function textOf(log, number) {
  const content = log.content[number];
  const parts = typeof content === 'string' ? [content] : content.map((part) => (typeof part === 'string' ? part : part.text ?? partText(part)));
  const calls = (log.calls[number] || []).map(([id, name, args]) => `${name} ${callText(args)} ${id}`);
  return [...parts, log.name[number], toolOf(log, number), log.callId[number], ...calls, log.entry[number]].filter(Boolean).join('\n');
}
