/*
 * The messages as they are sent at the current budget, and what was dropped between them and in them, folded to a line for each run.
 */

class Messages {
  constructor(view) {
    this.view = view;
    this.box = byId('messages');
    this.whole = new Set(); // texts that are shown in full, as `id:index of the piece`
    this.open = new Set(); // the first ids of the runs that are shown
    this.runs = new Map(); // the runs of dropped messages, by key
    this.list = new Windowed(this.box, { make: (key) => this.row(key), estimate: (key) => this.estimate(key) });
    this.box.addEventListener('click', (event) => this.clicked(event));
  }

  update() {
    const { record, state, fits } = this.view;
    const rows = fits ? messageRuns(record, state) : [];
    const sent = rows.filter((row) => !Array.isArray(row)).length;
    byId('count-messages').textContent = fits ? figure(sent) : '–';
    this.list.instead(sent ? null : this.nothing(fits));
    this.list.show(this.keys(rows));
    this.mark();
  }

  /* The keys of the rows: the ids of messages, and for a run the number before its first id and a half. */
  keys(rows) {
    this.runs.clear();
    const keys = [];
    for (const row of rows) {
      if (!Array.isArray(row)) {
        keys.push(row);
        continue;
      }
      this.runs.set(row[0] - 0.5, row);
      keys.push(row[0] - 0.5);
      if (this.open.has(row[0])) for (const id of row) keys.push(id);
    }
    return keys;
  }

  /* The message of the selected element. */
  mark() {
    const around = messageAround(this.view.record, this.view.selected);
    for (const card of this.box.querySelectorAll('.message')) card.classList.toggle('selected', Number(card.dataset.id) === around);
  }

  /* Bring a message into sight, or the line of the folded run with it. */
  reveal(id) {
    const around = messageAround(this.view.record, id);
    const at = this.list.indexOf(around);
    const key = this.list.keys[at] === around ? around : this.list.keys[at - 1];
    if (around >= 0 && (key === around || this.runs.has(key))) this.list.reveal(key);
    this.mark();
  }

  nothing(fits) {
    if (fits) return el('p', { class: 'nothing' }, 'No message is left at this budget: the request would be empty.');
    const { needed } = this.view;
    return el(
      'div',
      { class: 'nothing' },
      el('p', {}, 'Nothing is sent: the required elements do not fit this budget.'),
      needed === null
        ? el('p', {}, 'No budget fits: the required elements exceed a token limit in the prompt.')
        : el('p', {}, `At least ${counted(needed, 'token')} are needed. `, this.view.goButton(needed)),
      el('p', {}, 'The tree shows the required elements.'),
    );
  }

  row(key) {
    const run = this.runs.get(key);
    return run === undefined ? this.message(key) : el('div', { class: 'run' }, this.fold(run, 'message'));
  }

  /* The line of a run of dropped items, which shows and hides them. */
  fold(run, noun) {
    const { record, dropped } = this.view;
    const tokens = run.reduce((sum, id) => sum + dropped[record.end[id]] - dropped[id], 0);
    const text = `${counted(run.length, noun)}, ${counted(tokens, 'token')} dropped`;
    return el('button', { type: 'button', class: 'fold', 'data-fold': run[0], 'data-hold': `fold ${run[0]}`, 'aria-expanded': String(this.open.has(run[0])) }, text);
  }

  message(id) {
    const { record, sums, dropped } = this.view;
    const sent = isKept(record, id, this.view.state);
    const state = sent ? this.view.state : WRITTEN;
    const message = messageAt(record, id, state);
    const lost = droppedCallsAt(record, id, state);
    const selected = messageAround(record, this.view.selected) === id;
    const tokens = sent ? sums[record.end[id]] - sums[id] : dropped[record.end[id]] - dropped[id];
    const pieces = piecesAt(record, id, state);
    return el(
      'article',
      { class: `message ${message.role}${selected ? ' selected' : ''}${sent ? '' : ' dropped'}`, 'data-id': id, 'aria-label': `${message.role} message${sent ? '' : ', dropped'}` },
      el(
        'header',
        {},
        el('span', { class: `role ${message.role}` }, message.role),
        message.name !== null && el('bdi', { class: 'of' }, message.name),
        message.callId !== null && el('bdi', { class: 'of', title: 'tool call id' }, message.callId),
        record.fallback[id] > 0 && el('span', { class: 'badge' }, 'fallback'),
        !sent && el('span', { class: 'badge' }, 'dropped'),
        sent && onlyLiteralLeft(record, id, state) && literalBadge(),
        el('button', { type: 'button', class: 'origin', 'data-select': id, 'data-hold': `origin ${id}`, title: pathOf(record, id) }, shortPath(record, id)),
        el('span', { class: 'num' }, counted(tokens, 'token')),
      ),
      pieces.map((piece, index) => this.piece(piece, `${id}:${index}`)),
      message.calls.map(callBox),
      lost.length > 0 && this.lostCalls(id, lost),
      !message.content.length && !message.calls.length && el('p', { class: 'nothing' }, 'No content.'),
    );
  }

  piece({ text, joined, part, dropped }, key) {
    if (part !== undefined) return partBox(part);
    return dropped === undefined ? this.text(text, key, joined ? 'joined' : '') : this.dropped(dropped);
  }

  /* The line of the dropped items in a message, and their content if it is shown. */
  dropped(run) {
    const line = this.fold(run, 'part');
    if (!this.open.has(run[0])) return line;
    const { record } = this.view;
    const content = (id) => {
      const found = [];
      for (let at = id; at < record.end[id]; at += 1) {
        if (record.fallback[at]) continue;
        if (record.text[at]) found.push(this.text(record.text[at], `dropped ${at}`, 'gone'));
        if (record.part[at]) found.push(el('p', { class: 'part gone' }, el('span', {}, partText(record.part[at]))));
      }
      return found;
    };
    const more = run.length - MANY;
    return [line, run.slice(0, MANY).map(content), more > 0 && el('p', { class: 'note gone' }, `${counted(more, 'more part')}`)];
  }

  /* The line of the tool calls that a kept message has lost, and the calls if they are shown. */
  lostCalls(id, calls) {
    const key = `calls ${id}`;
    const open = this.open.has(key);
    const line = el('button', { type: 'button', class: 'fold', 'data-fold': key, 'data-hold': key, 'aria-expanded': String(open) }, `${counted(calls.length, 'tool call')} dropped`);
    return [line, open && calls.map((call) => el('div', { class: 'gone' }, callBox(call)))];
  }

  text(text, key, kind) {
    return textBox(text, { key, kind, whole: this.whole.has(key) });
  }

  /* The height in pixels; a row that is drawn is measured. */
  estimate(id) {
    if (this.runs.has(id)) return 37;
    const { record, state } = this.view;
    const wide = Math.max(20, (this.list.width - 32) / 7.5); // characters in a line
    let lines = 0;
    for (let at = id; at < record.end[id]; at += 1) {
      if (record.text[at] && isKept(record, at, state)) lines += record.text[at].length / wide;
    }
    return 48 + 19 * Math.min(TALL, Math.ceil(lines)) + 24 * (record.calls[id] ? record.calls[id].length : 0);
  }

  clicked(event) {
    const button = event.target.closest('button');
    if (button && button.dataset.fold) this.toggle(button.dataset.fold);
    if (button && button.dataset.whole) {
      this.whole.add(button.dataset.whole);
      this.list.draw(true);
      this.box.focus();
    }
    if (button && button.dataset.select) this.view.select(Number(button.dataset.select), { from: this, open: true });
  }

  /* Show or hide a run: of messages or of parts by its first id, of tool calls by its key. */
  toggle(fold) {
    const key = fold.startsWith('calls ') ? fold : Number(fold);
    if (!this.open.delete(key)) this.open.add(key);
    if (this.runs.has(key - 0.5)) this.update();
    else this.list.draw(true);
  }
}
