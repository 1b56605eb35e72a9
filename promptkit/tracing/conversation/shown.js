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

  /* Scroll to the newest messages, which the request was sent for. */
  toEnd() {
    const last = this.rows.keys.at(-1);
    if (last !== undefined) this.list.reveal(last);
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
    const { log, selected, matches } = this.view;
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
        log.name[number] !== undefined && el('bdi', { class: 'of' }, log.name[number]),
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
    return el('a', { class: 'origin', href: `#message-${number}`, 'data-hold': `entry ${number}` }, placeText(this.view.log, number));
  }

  piece(piece, key) {
    const whole = this.whole.has(key);
    if (typeof piece === 'string') return textBox(piece, { key, kind: '', whole, most: LONGEST, tall: TALLEST });
    return piece.kind === 'opaque' ? textBox(opaqueText(piece), { key, kind: 'part', whole, most: LONGEST / 4, tall: TALLEST }) : partBox(piece);
  }

  call([id, name, args], key) {
    if (args.length <= LONGEST || this.whole.has(key)) return callBox([id, name, args]);
    const more = el('button', { type: 'button', class: 'more', 'data-whole': key, 'data-hold': `more ${key}` }, `Show all ${counted(args.length, 'character')}`);
    return [callBox([id, name, `${args.slice(0, LONGEST)}…`]), more];
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
    if (key !== undefined) this.list.reveal(key);
    this.list.draw(true);
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

/* A provider's own part, such as thinking: its text, or else its properties. */
function opaqueText(part) {
  return part.text === undefined ? partText(part) : `${part.type}: ${part.text}`;
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
  const words = contentOf(log, number).map((piece) => (typeof piece === 'string' ? firstWords(piece, 160) : `[${firstWords(opaqueText(piece), 160)}]`));
  const calls = (log.calls[number] || []).map(([, name, args]) => `→ ${name} ${firstWords(args, 80)}`);
  return [...words, ...calls].join(' ').slice(0, 200);
}
