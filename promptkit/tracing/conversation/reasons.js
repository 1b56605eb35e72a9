/*
 * What fills the window of a request, and why parts of the request were not cached. Only what the recording shows is said.
 */

const LARGEST = 5; // messages that are listed
const MOST_TOOLS = 6; // tools whose results have a line of their own
const LIFETIME = 300; // seconds that providers keep an unused prefix at least, unless they are asked for longer
const SMALLEST = 1024; // tokens of the shortest prefix that most providers cache
const SLACK = 0.1; // the share of the request before that may be missing from the cache: caches hold whole blocks of tokens

/* The tools whose results a request shows, with their tokens and number, the largest first. */
function resultsByTool(log, numbers) {
  const tools = new Map();
  for (const number of numbers) {
    if (log.role[number] !== 'tool') continue;
    const name = toolOf(log, number) ?? 'of no tool';
    const sum = tools.get(name) || { name, tokens: 0, count: 0 };
    sum.tokens += log.tokens[number];
    sum.count += 1;
    tools.set(name, sum);
  }
  return [...tools.values()].sort((one, other) => other.tokens - one.tokens);
}

/* The largest messages of a request, as links. */
function largestList(log, numbers) {
  const largest = [...numbers].sort((one, other) => log.tokens[other] - log.tokens[one]).slice(0, LARGEST);
  return el('div', { role: 'list', 'aria-label': 'Largest messages' }, largest.map((number) => messageRow(log, number)));
}

/* A message on one line, as a link. */
function messageRow(log, number) {
  const role = log.kind[number] === 's' ? 'summary' : log.role[number];
  return el(
    'a',
    { class: 'entry-row', role: 'listitem', href: messageAddress(number) },
    el('span', { class: `role ${role}` }, roleText(log, number)),
    log.role[number] === 'tool' && el('bdi', { class: 'tool-name' }, toolOf(log, number)),
    el('bdi', { class: 'preview' }, askedOf(log, number) || previewOf(log, number)),
    el('span', { class: 'num' }, figure(log.tokens[number])),
  );
}

/* What a result was asked for, such as a path: the arguments of its call on one line; empty for other messages. */
function askedOf(log, number) {
  const call = log.callers.get(recordedOf(log, number));
  if (!call) return '';
  const [, , args] = log.calls[call.number][call.index];
  return firstWords(args.replace(/^\{"|"?\}$/g, '').replaceAll('": "', ': ').replaceAll('": ', ': '), 160);
}

/*
 * How a request begins: `place` is the number of messages that it has in common with the request before, `difference` the block that differs or
 * undefined, and `missing` the tokens of the common beginning that were not read from the cache.
 */
function beginningOf(log, source, request) {
  const difference = source.differences[request];
  const numbers = numbersIn(runsAt(source, request));
  const before = numbersIn(runsAt(source, request - 1));
  const place = difference ? difference[0] : before.length;
  let common = source.tokens[request - 1];
  if (difference) {
    const own = source.parts.reduce((sum, column, part) => sum + (log.parts[part] === 'tools' ? column[request] : 0), 0);
    common = before.slice(0, place).reduce((sum, number) => sum + log.tokens[number], own);
  }
  const missing = common - source.cached[request];
  return { difference, place, common, numbers, before, missing: missing > Math.max(SMALLEST, SLACK * common) ? missing : 0 };
}

/* Why the cache served less of a recorded request, as its session noted it; undefined where nothing is noted. */
function notedReason(log, source, request) {
  return source.name === 'recorded' ? log.missed[source.reply[request]] : undefined;
}

/* A few words for the tip of a bar; empty where everything that could be cached was. */
function shortReason(log, source, request) {
  const noted = notedReason(log, source, request);
  if (request === 0 || noted) return noted ? `Not cached: ${noted}.` : '';
  const { difference, place, before, missing } = beginningOf(log, source, request);
  if (difference) return `Not cached from ${place < before.length ? nameOf(log, before[place]) : 'its end'} on, which differs from request ${figure(request)}.`;
  return missing ? `Not cached: ${counted(missing, 'token')} that request ${figure(request)} had sent.` : '';
}

/* The message as it is named in a sentence. */
function nameOf(log, number) {
  if (number >= log.length && log.original[number] === undefined) return log.kind[number] === 's' ? 'the summary' : 'a message that the program added';
  const tool = log.role[number] === 'tool' && toolOf(log, number);
  return tool ? `${placeText(log, number)} (result of ${tool})` : `${placeText(log, number)} (${roleText(log, number)})`;
}

/* Whether a request could not, or did not, read the beginning from the cache that it has in common with the request before. */
function isMissed(log, source, request) {
  return request > 0 && shortReason(log, source, request) !== '';
}

/* Why tokens of a request were not cached, as paragraphs. */
function cacheReasons(log, source, request) {
  if (request === 0) {
    const cached = source.cached[0] > 0 ? ` The ${counted(source.cached[0], 'cached token')} were sent by a request that is not recorded here.` : '';
    return [el('p', {}, `It is the first request, so nothing recorded was sent before it.${cached}`)];
  }
  const noted = notedReason(log, source, request);
  const note = noted && el('p', {}, `The session noted: ${noted}.`);
  const beginning = beginningOf(log, source, request);
  const link = el('a', { href: `#request-${request}` }, `request ${figure(request)}`);
  if (beginning.difference) return [note, ...differenceOf(log, beginning, link), !noted && beginning.missing > 0 && missingText(log, source, request, beginning)];
  const added = Math.max(0, source.tokens[request] - source.tokens[request - 1]);
  return [
    note,
    el('p', {}, 'Its messages begin with all of ', link, `, unchanged; ${counted(added, 'token')} are new.`),
    !noted && beginning.missing > 0 && missingText(log, source, request, beginning),
  ];
}

/* The first block that differs, before and now. */
function differenceOf(log, { difference: [, block], place, common, numbers, before }, link) {
  const [earlier, later] = [before[place], numbers[place]];
  const told = (number) => el('a', { href: messageAddress(number) }, nameOf(log, number));
  const blocks = [earlier, later].map((number) => (number === undefined ? null : blockText(log, number, block)));
  const excerpts = excerptsOf(...blocks);
  return [
    el('p', {}, 'The first block that differs from ', link, ' is in ', told(earlier), common ? `; ${counted(common, 'token')} stand before it.` : '; nothing that is recorded stands before it.'),
    el('p', {}, changeText(log, earlier, later, numbers, told)),
    el(
      'dl',
      { class: 'difference' },
      el('dt', {}, 'before'),
      el('dd', {}, excerpts[0]),
      el('dt', {}, 'now'),
      el('dd', {}, excerpts[1]),
    ),
  ];
}

function changeText(log, earlier, later, numbers, told) {
  if (later === undefined) return 'The request ends before it.';
  if (log.kind[later] === 's') return ['A summary stands there now, for ', counted(log.covers[later] ? log.covers[later][1] - log.covers[later][0] : 0, 'message'), '.'];
  if (recordedOf(log, earlier) === recordedOf(log, later)) return `It was changed: ${counted(log.tokens[earlier], 'token')} before, ${figure(log.tokens[later])} now.`;
  const kept = numbers.some((number) => recordedOf(log, number) === recordedOf(log, earlier));
  return [kept ? 'Before it stands ' : 'It was left out; there follows ', told(later), kept ? ' now.' : '.'];
}

/* Where the same beginning was not read from the cache. */
function missingText(log, source, request, { missing, common }) {
  const seconds = source.time[request] && source.time[request - 1] ? source.time[request] - source.time[request - 1] : 0;
  const late = seconds > LIFETIME ? `${longTime(seconds)} passed between the two; a provider keeps a prefix for 5 minutes unless it is asked for longer.` : '';
  const small = common < 2 * SMALLEST ? `Most providers cache a prefix from ${counted(SMALLEST, 'token')} on, some from more.` : '';
  const other = source.simulated[request] === '1' ? 'The simulated cache did not hold it.' : 'The messages do not show why: the instructions, the tools or the model may have changed, which are not recorded, or the provider had lost it.';
  return el('p', {}, `Yet ${counted(missing, 'token')} of this beginning were not read from the cache. ${late || small || other}`);
}

function longTime(seconds) {
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? counted(minutes, 'minute') : minutes < 2880 ? counted(Math.round(minutes / 60), 'hour') : counted(Math.round(minutes / 1440), 'day');
}

/* The text of a block of a message: its content parts come first, then its calls. Without a block: the beginning of the message. */
function blockText(log, number, block) {
  const parts = contentOf(log, number);
  if (block === null) return previewOf(log, number);
  if (block < parts.length) return typeof parts[block] === 'string' ? parts[block] : parts[block].text ?? partText(parts[block]);
  const call = (log.calls[number] || [])[block - parts.length];
  return call ? `→ ${call[1]} ${call[2]}` : null;
}

/* Two texts from shortly before the first character that differs, which is marked. */
function excerptsOf(before, after) {
  const [one, other] = [before ?? '', after ?? ''];
  let at = 0;
  while (at < one.length && one[at] === other[at]) at += 1;
  const start = Math.max(0, at - 40);
  const excerpt = (text) => [start ? '…' : '', text.slice(start, at), el('strong', {}, text.slice(at, at + 160)), text.length > at + 160 ? '…' : ''];
  return [before, after].map((text) => (text === null ? el('em', {}, 'nothing') : text.length > at ? excerpt(text) : [...excerpt(text), el('em', {}, 'the end')]));
}
