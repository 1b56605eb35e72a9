/*
 * The rows of the list of messages: what a request shows, in order, and between it what it does not show. A row's key is the number of the
 * message of the conversation at that place. Messages that stand in no place of the conversation, such as summaries, have keys between
 * two of them, and so have the lines of runs of dropped messages. Nothing here uses the document.
 */

/* The rows of a request. `open` has the first numbers of the runs of dropped messages that are unfolded. */
function rowsAt(log, source, request, open) {
  const rows = { keys: [], number: new Map(), run: new Map(), dropped: 0, droppedTokens: 0, shown: 0 };
  if (request < 0) return rows;
  const numbers = numbersIn(runsAt(source, request));
  const reply = source.reply[request];
  const present = new Uint8Array(reply);
  const placeOf = (number) => (number < log.length ? number : log.original[number] ?? -1);
  for (const number of numbers) if (placeOf(number) >= 0) present[placeOf(number)] = 1;
  rows.shown = numbers.length;
  let last = -1;
  let others = [];
  const close = (next) => {
    others.forEach((number, index) => addRow(rows, last + 0.1 + (0.3 * index) / others.length, number));
    others = [];
    const run = [];
    for (let number = last + 1; number < next; number += 1) if (!present[number]) run.push(number);
    if (run.length) addRun(log, rows, last + 0.5, run, open);
  };
  for (const number of numbers) {
    const place = placeOf(number);
    if (place > last && place < reply) {
      close(place);
      addRow(rows, place, number);
      last = place;
    } else others.push(number);
  }
  close(reply);
  return rows;
}

function addRow(rows, key, number) {
  rows.keys.push(key);
  rows.number.set(key, number);
}

function addRun(log, rows, key, run, open) {
  rows.keys.push(key);
  rows.run.set(key, run);
  rows.dropped += run.length;
  for (const number of run) rows.droppedTokens += log.tokens[number];
  if (open.has(run[0])) for (const number of run) rows.keys.push(number);
}

/* The key of the row of a message, or of the run that it is in; undefined if the request has neither. */
function keyOf(log, rows, number) {
  for (const [key, shown] of rows.number) if (shown === number) return key;
  const place = number < log.length ? number : log.original[number];
  if (place === undefined) return undefined;
  if (rows.number.has(place)) return place;
  for (const [key, run] of rows.run) if (run[0] <= place && place <= run.at(-1) && run.includes(place)) return key;
  return undefined;
}

/* The shown summary that stands for a message of the conversation, or undefined. */
function summaryFor(log, runs, number) {
  return numbersIn(runs).find((shown) => log.covers[shown] && log.covers[shown][0] <= number && number < log.covers[shown][1]);
}

/* The messages that a summary stands for: those in its range that the first request with it does not show. */
function coveredBy(log, source, number) {
  const covers = log.covers[number];
  const [range] = requestsShowing(log, source, number);
  if (!covers || !range) return [];
  const shown = new Set(numbersIn(runsAt(source, range[0])).map((each) => (each < log.length ? each : log.original[each])));
  const covered = [];
  for (let each = covers[0]; each < covers[1]; each += 1) if (!shown.has(each)) covered.push(each);
  return covered;
}
