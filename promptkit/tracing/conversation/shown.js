/*
 * The list of what a request of one source shows, in order, with what it does not show greyed between, folded to a line for each run.
 */

const TALLEST = 10; // lines of a text that are shown at first
const LONGEST = 1600; // characters of a text that are shown at first

class Shown {
  constructor(view, source, box) {
    this.view = view;
    this.source = source;
    this.box = box;
    this.open = new Set(); // the first numbers of the runs of dropped messages that are unfolded
    this.whole = new Set(); // texts that are shown in full, as `number:index`
    this.rows = rowsAt(view.log, source, -1, this.open);
    this.list = new Windowed(box, { make: (key) => this.row(key), estimate: (key) => this.estimate(key) });
    this.list.moved = (by) => view.head.scrolled(by);
    box.addEventListener('click', (event) => this.clicked(event));
  }

  get request() {
    return this.source.at[this.view.step];
  }

  update() {
    this.rows = rowsAt(this.view.log, this.source, this.request, this.open);
    this.runs = runsAt(this.source, this.request);
    this.list.instead(this.rows.keys.length ? null : el('p', { class: 'nothing' }, 'No request of this kind was sent yet.'));
    this.list.show(this.rows.keys);
  }

  /* Scroll to the summary that a checkpoint has put into the request, or else to the newest messages, which the request was sent for. */
  toStart() {
    const summary = this.request >= 0 && this.source.checkpoints.includes(this.request) ? numbersIn(this.runs).findLast((number) => this.view.log.kind[number] === 's') : undefined;
    const key = summary === undefined ? this.rows.keys.at(-1) : keyOf(this.view.log, this.rows, summary);
    if (key !== undefined) this.list.reveal(key);
  }

  row(key) {
    const run = this.rows.run.get(key);
    if (run) return el('div', { class: 'run' }, this.fold(run));
    const number = this.rows.number.get(key);
    return number === undefined ? this.message(key, true) : this.message(number, false);
  }

  fold(run) {
    const { log } = this.view;
    const tokens = run.reduce((sum, number) => sum + log.tokens[number], 0);
    const summary = summaryFor(log, this.runs, run[0]);
    const text = `${counted(run.length, 'message')}, ${counted(tokens, 'token')} dropped${summary === undefined ? '' : ' · the summary stands for them'}`;
    return el('button', { type: 'button', class: 'fold', 'data-fold': run[0], 'data-hold': `fold ${run[0]}`, 'aria-expanded': String(this.open.has(run[0])) }, text);
  }

  message(number, dropped) {
    const { log, selected, matches, mark } = this.view;
    const role = log.kind[number] === 's' ? 'summary' : log.role[number];
    const label = `${roleText(log, number)}${dropped ? ', dropped' : ''}`;
    const match = matches !== null && matches.has(number);
    return el(
      'article',
      { class: `message ${role}${dropped ? ' dropped' : ''}${selected === number ? ' selected' : ''}${match ? ' match' : ''}`, 'data-number': number, 'aria-label': label },
      el(
        'header',
        {},
        el('span', { class: `role ${role}` }, roleText(log, number)),
        log.role[number] === 'tool' ? this.caller(number) : log.name[number] !== undefined && el('bdi', { class: 'of' }, marked(log.name[number], mark)),
        isError(log, number) && chipOf('error'),
        log.kind[number] === 'c' && el('span', { class: 'badge' }, `changed, was ${counted(log.tokens[log.original[number]], 'token')}`),
        dropped && el('span', { class: 'badge' }, 'dropped'),
        this.link(number),
        el('span', { class: 'num' }, counted(log.tokens[number], 'token')),
      ),
      contentOf(log, number).map((piece, index) => this.piece(piece, `${number}:${index}`)),
      (log.calls[number] || []).map((call, index) => this.call(call, `${number}:call ${index}`)),
    );
  }

  /* The link to the entry of a message. */
  link(number) {
    return el('a', { class: 'origin', href: messageAddress(number), 'data-hold': `entry ${number}` }, placeText(this.view.log, number));
  }

  /* The tool that a result comes from, as a link to its call. */
  caller(number) {
    const { log, mark } = this.view;
    const call = log.callers.get(recordedOf(log, number));
    const tool = toolOf(log, number);
    if (!call) return tool !== undefined && el('bdi', { class: 'tool-name' }, marked(tool, mark));
    return el('a', { class: 'tool-name', href: messageAddress(call.number), 'data-hold': `call of ${number}`, title: `the call, in message ${figure(call.number + 1)}` }, el('bdi', {}, marked(tool, mark)));
  }

  piece(piece, key) {
    if (piece.kind === 'error') return null; // its chip is in the head
    const options = { key, whole: this.isWhole(key), most: typeof piece === 'string' ? LONGEST : LONGEST / 4, tall: TALLEST, mark: this.view.mark };
    return typeof piece === 'string' ? textBox(piece, options) : partBox(piece, options);
  }

  call(call, key) {
    return callBox(call, { key, isWhole: (inner) => this.isWhole(inner), most: LONGEST, tall: 2 * TALLEST, mark: this.view.mark, after: resultLink(this.view.log, key) });
  }

  isWhole(key) {
    return this.view.printing || this.whole.has(key);
  }

  /* Show in full what has the words of the search, in one message. */
  unfold(number) {
    const { log, mark } = this.view;
    const found = (text) => text.search(mark) >= 0;
    contentOf(log, number).forEach((piece, index) => {
      if (found(typeof piece === 'string' ? piece : piece.text || '')) this.whole.add(`${number}:${index}`);
    });
    (log.calls[number] || []).forEach(([, , args], index) => {
      callPieces(args).forEach((piece, at) => {
        const key = `${number}:call ${index}`;
        if (found(piece.inline ?? piece.text ?? piece.lines.map(([, line]) => line).join('\n'))) this.whole.add(piece.inline === undefined ? `${key}:${at}` : key);
      });
    });
  }

  /* Scroll to the first word of the search in a message. */
  toMark(number) {
    const word = this.box.querySelector(`.message[data-number="${number}"] mark`);
    if (!word) return;
    const top = word.getBoundingClientRect().top - this.box.getBoundingClientRect().top;
    if (top < 0 || top > this.list.height - 40) {
      this.list.scrollTo(this.list.top + top - this.list.height / 3);
      this.list.draw(false);
    }
  }

  /* The height in pixels; a row that is drawn is measured. */
  estimate(key) {
    if (this.rows.run.has(key)) return 37;
    const { log } = this.view;
    const number = this.rows.number.get(key) ?? key;
    const wide = Math.max(20, (this.list.width - 32) / 7.5); // characters in a line
    return 48 + 19 * Math.min(TALLEST, Math.ceil((3.5 * log.tokens[number]) / wide));
  }

  /* Bring a message into sight, or its place if it is changed or folded. */
  reveal(number) {
    let key = keyOf(this.view.log, this.rows, number);
    const run = this.rows.run.get(key);
    if (run) {
      this.open.add(run[0]);
      this.update();
      key = number;
    }
    if (this.view.mark && this.view.matches.has(number)) this.unfold(number);
    if (key !== undefined) this.list.reveal(key);
    this.list.draw(true);
    if (this.view.mark) this.toMark(number);
  }

  clicked(event) {
    const button = event.target.closest('button');
    if (button && button.dataset.fold) this.toggle(Number(button.dataset.fold));
    else if (button && button.dataset.whole) {
      this.whole.add(button.dataset.whole);
      this.list.draw(true);
      this.box.focus();
    } else if (!button && !event.target.closest('a') && getSelection().isCollapsed) {
      const card = event.target.closest('.message');
      if (card) this.view.select(Number(card.dataset.number), { from: this });
    }
  }

  toggle(first) {
    if (!this.open.delete(first)) this.open.add(first);
    this.update();
  }
}

/* The texts and the other parts of a message. */
function contentOf(log, number) {
  const content = log.content[number];
  if (typeof content === 'string') return content ? [content] : [];
  return content;
}

/* The address of a message on the page. */
function messageAddress(number) {
  return `#message-${number + 1}`;
}

/* The link from a call to its result. The key is `number:call index`. */
function resultLink(log, key) {
  const [number, index] = key.split(':call ');
  const result = log.results.get(`${recordedOf(log, Number(number))}:${index}`);
  if (result === undefined) return el('span', { class: 'badge' }, 'no result recorded');
  return el('a', { class: 'origin', href: messageAddress(result), 'data-hold': `result ${key}` }, `result: message ${figure(result + 1)}`);
}

function roleText(log, number) {
  if (log.kind[number] === 's') return 'summary';
  return log.role[number] === 'tool' ? 'result' : log.role[number];
}

/* The place of a message in the conversation, or of one that stands for others. */
function placeText(log, number) {
  if (number < log.length) return `message ${figure(number + 1)}`;
  if (log.original[number] !== undefined) return `message ${figure(log.original[number] + 1)}`;
  return log.kind[number] === 's' ? 'in place of earlier messages' : 'added by the program';
}

/* The beginning of a message on one line, with its tool calls. */
function previewOf(log, number) {
  const words = contentOf(log, number).map((piece) => (typeof piece === 'string' ? firstWords(piece, 160) : piece.kind === 'error' ? '' : `[${firstWords(piece.text === undefined ? partText(piece) : `${piece.kind}: ${piece.text}`, 160)}]`));
  const calls = (log.calls[number] || []).map(([, name, args]) => `→ ${name} ${firstWords(args, 80)}`);
  return [...words, ...calls].filter(Boolean).join(' ').slice(0, 200);
}
