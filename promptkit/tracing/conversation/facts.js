/*
 * The panels beside the messages: the figures of the request, the selected message with the requests that show it, and all requests.
 */

const FAR = 3; // a limit of so many times a request is far from it

class Facts {
  constructor(view) {
    this.view = view;
    this.request = byId('request-facts');
    this.entry = byId('entry');
    this.whole = false;
    this.covered = []; // the messages that the selected summary stands for
    this.table = new Windowed(byId('requests'), { make: (key) => this.tableRow(key) });
    this.table.show(Array.from(view.log.steps, (_, step) => step));
    new ResizeObserver(() => this.table.reveal(view.step)).observe(byId('requests')); // also when its tab is opened
    byId('requests').addEventListener('click', (event) => {
      const row = event.target.closest('[data-step]');
      if (row) view.go(Number(row.dataset.step));
    });
  }

  update() {
    const { bill, sources } = this.view.log;
    const billed = bill ? [el('section', { class: 'block' }, el('h2', {}, 'Bill'), el('p', { class: 'note' }, bill.text))] : [];
    this.request.replaceChildren(...sources.map((source) => this.sourceFacts(source)), ...billed);
    this.updateEntry();
    this.table.draw(true);
    this.table.reveal(this.view.step);
  }

  /* The size of a request by part, and what it was billed. */
  sourceFacts(source) {
    const { log, step } = this.view;
    const request = source.at[step];
    const head = el('h2', {}, source.name, el('span', { class: 'kind' }, this.kind(source, request)));
    if (request < 0) return el('section', { class: 'block' }, head, el('p', { class: 'note' }, 'No request was sent yet.'));
    const tokens = source.tokens[request];
    const whole = source.parts.reduce((sum, column) => sum + column[request], 0);
    const most = Math.max(whole, log.limit && log.limit < FAR * tokens ? log.limit : tokens); // bars of a far limit would all be empty
    const numbers = numbersIn(runsAt(source, request));
    const written = source.written[request];
    const rest = tokens - source.cached[request] - written;
    const before = request ? source.cost[request - 1] : 0;
    const reason = [el('h2', {}, 'Why was this not cached?'), el('div', { class: 'reason' }, cacheReasons(log, source, request))];
    const missed = isMissed(log, source, request);
    return el(
      'section',
      { class: 'block' },
      head,
      missed && reason,
      el('h2', {}, 'What fills this window'),
      el(
        'div',
        { class: 'lines' },
        source.parts.map((column, part) => column[request] > 0 && [
          this.line(PART_TEXTS[log.parts[part]], column[request], most, PART_COLOURS[part]),
          log.parts[part] === 'results' && this.toolLines(numbers, most),
        ]),
      ),
      numbers.length > 0 && [el('h2', {}, 'Largest messages'), largestList(log, numbers)],
      el('h2', {}, 'Tokens'),
      el(
        'div',
        { class: 'lines' },
        this.line('cached', source.cached[request], most, 'cached'),
        written > 0 && this.line('written to the cache', written, most, 'paid'),
        this.line('paid in full', rest, most, 'paid'),
      ),
      !missed && reason,
      el('h2', {}, 'Figures'),
      el(
        'dl',
        { class: 'props' },
        fact('All input', counted(tokens, 'token')),
        fact('Reply', counted(source.output[request], 'token')),
        log.limit ? fact('Of the limit', `${Math.round((100 * tokens) / log.limit)} % of ${figure(log.limit)}`) : [],
        source.cost[request] === null ? [] : fact('This request', dollars(source.cost[request] - before)),
        source.cost[request] === null ? [] : fact('Price so far', `${dollars(source.cost[request])} of ${dollars(source.price)}`),
      ),
      this.checkpoints(source, request),
    );
  }

  kind(source, request) {
    if (request < 0) return '';
    return source.simulated[request] === '1' ? 'simulated prompt cache' : 'as the provider billed it';
  }

  /* The results by tool, if there are several tools. */
  toolLines(numbers, most) {
    const tools = resultsByTool(this.view.log, numbers);
    if (tools.length < 2) return null;
    const rest = tools.splice(MOST_TOOLS);
    const others = { name: counted(rest.length, 'more tool'), tokens: 0, count: 0 };
    for (const each of rest) {
      others.tokens += each.tokens;
      others.count += each.count;
    }
    return [...tools, ...(rest.length ? [others] : [])].map(({ name, tokens, count }) => this.line(`${name} (${figure(count)})`, tokens, most, 'tool', 'inner'));
  }

  line(name, tokens, most, colour, kind = '') {
    const bar = el('span', { class: `fill part-${colour}` });
    bar.style.width = `${(100 * tokens) / Math.max(1, most)}%`;
    return el('div', { class: `line ${kind}` }, el('span', { class: 'who' }, name), el('span', { class: 'share' }, bar), el('span', { class: 'num' }, counted(tokens, 'token')));
  }

  checkpoints(source, request) {
    if (!source.checkpoints.length) return null;
    const { log } = this.view;
    const shown = source.checkpoints.slice(0, 200);
    const button = (each) => el('button', { type: 'button', class: 'go', 'aria-current': each === request ? 'true' : null, onclick: () => this.view.go(stepOf(log, source, each)) }, figure(each + 1));
    return [el('h2', {}, 'Requests after a checkpoint'), el('p', { class: 'steps' }, shown.map(button))];
  }

  /* The selected message. */
  updateEntry() {
    const { log, selected } = this.view;
    this.covered = [];
    if (selected === null) {
      this.entry.replaceChildren(el('p', { class: 'nothing' }, 'Select a message: its entry, and which requests show it, appear here.'));
      return;
    }
    const covered = log.kind[selected] === 's' ? this.coveredList(selected) : null;
    const original = log.original[selected];
    this.entry.replaceChildren(
      el('h2', {}, `${roleText(log, selected)}, ${placeText(log, selected)}`),
      el('dl', { class: 'props' }, this.properties(selected)),
      ...log.sources.map((source) => this.fate(source, selected)),
      el(
        'div',
        { class: covered ? 'beside' : '' },
        el('div', { class: 'side' }, covered && el('h3', {}, 'The summary'), this.texts(selected)),
        covered,
        original !== undefined && el('div', { class: 'side' }, el('h3', {}, 'As it was recorded'), this.texts(original)),
      ),
    );
  }

  properties(number) {
    const { log } = this.view;
    const at = number < log.length ? number : log.original[number];
    return [
      fact('Tokens', figure(log.tokens[number])),
      log.entry[number] ?? log.entry[at] ? fact('Entry', el('bdi', { class: 'id' }, log.entry[number] ?? log.entry[at])) : [],
      log.time[number] ?? log.time[at] ? fact('Written', timeText(log.time[number] ?? log.time[at])) : [],
      log.callId[number] ? fact('Tool call', el('bdi', { class: 'id' }, log.callId[number])) : [],
    ];
  }

  /* Which requests of a source show a message, and what stands for it now. */
  fate(source, number) {
    const { view } = this;
    const { log, step } = view;
    const request = source.at[step];
    const ranges = requestsShowing(log, source, number);
    const many = log.sources.length > 1 ? `${source.name}: ` : '';
    const go = (each) => el('button', { type: 'button', class: 'go', onclick: () => view.go(stepOf(log, source, each)) }, `request ${figure(each + 1)}`);
    if (!ranges.length) return el('p', { class: 'when' }, many, 'no request shows it.');
    const within = ranges.some(([from, to]) => from <= request && request < to);
    const state = within ? el('strong', { class: 'yes' }, 'shown') : el('strong', { class: 'no' }, request < ranges[0][0] ? 'not written yet' : 'dropped');
    const total = ranges.reduce((sum, [from, to]) => sum + to - from, 0);
    const summary = within ? undefined : summaryFor(log, runsAt(source, request), number);
    return el(
      'p',
      { class: 'when' },
      many,
      state,
      ` in this request. ${counted(total, 'request')} of ${figure(source.count)} show${total === 1 ? 's' : ''} it: first `,
      go(ranges[0][0]),
      ', last ',
      go(ranges.at(-1)[1] - 1),
      summary !== undefined && [' · ', el('a', { href: messageAddress(summary) }, 'the summary that stands for it')],
    );
  }

  texts(number) {
    const { log, mark } = this.view;
    return [
      contentOf(log, number).map((piece, index) => {
        const options = { key: `${number}:${index}`, whole: true, mark };
        return typeof piece === 'string' ? textBox(piece, options) : partBox(piece, options);
      }),
      (log.calls[number] || []).map((call, index) => callBox(call, { key: `${number}:call ${index}`, mark, after: resultLink(log, `${number}:call ${index}`) })),
    ];
  }

  /* What a summary stands for, as a list of links. */
  coveredList(number) {
    const { log } = this.view;
    const source = log.sources.find((each) => requestsShowing(log, each, number).length);
    this.covered = source ? coveredBy(log, source, number) : [];
    const tokens = this.covered.reduce((sum, each) => sum + log.tokens[each], 0);
    const box = el('div', { class: 'scroll covered', tabindex: '0', role: 'list', 'aria-label': 'Messages that the summary stands for' });
    const list = new Windowed(box, { make: (key) => messageRow(log, key) });
    list.show(this.covered);
    return el('div', { class: 'side' }, el('h3', {}, `Stands for ${counted(this.covered.length, 'message')}, ${counted(tokens, 'token')}`), box);
  }

  /* A row of the table of all requests. */
  tableRow(step) {
    const { log } = this.view;
    const cells = log.sources.map((source) => {
      const request = source.at[step];
      if (request < 0) return el('span', { class: 'cells' });
      return el(
        'span',
        { class: 'cells' },
        el('span', { class: 'num' }, figure(source.tokens[request])),
        el('span', { class: 'num' }, figure(source.cached[request])),
        el('span', { class: 'num' }, dollars(source.cost[request])),
        el('span', { class: 'flag', title: 'after a checkpoint' }, source.checkpoints.includes(request) ? '▼' : ''),
      );
    });
    const current = step === this.view.step;
    return el('div', { class: `request${current ? ' current' : ''}`, role: 'listitem', 'data-step': step, 'aria-current': current ? 'true' : null }, el('button', { type: 'button', class: 'link num', 'data-hold': `step ${step}` }, figure(step + 1)), cells);
  }
}

const PART_TEXTS = {
  system: 'system',
  tools: 'tools',
  summary: 'summary',
  user: 'user',
  assistant: 'assistant',
  results: 'tool results',
  unrecorded: 'not in the recording',
};

function fact(name, value) {
  return [el('dt', {}, name), el('dd', {}, value)];
}

function timeText(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? '–' : `${date.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}
