/*
 * The messages as they are sent at the current budget.
 */

const MOST = 20000; // characters of one text that are shown at first
const TALL = 24; // lines of one text that are shown at first

class Messages {
  constructor(view) {
    this.view = view;
    this.box = byId('messages');
    this.whole = new Set(); // texts that are shown in full, as `id:index of the part`
    this.list = new Windowed(this.box, { make: (id) => this.message(id), estimate: (id) => this.estimate(id) });
    this.box.addEventListener('click', (event) => this.clicked(event));
  }

  update() {
    const { record, state, fits } = this.view;
    const ids = fits ? messageIds(record, state) : [];
    byId('count-messages').textContent = fits ? figure(ids.length) : '–';
    this.list.instead(fits && ids.length ? null : this.nothing(fits));
    this.list.show(ids);
    this.mark();
  }

  /* The message of the selected element. */
  mark() {
    const around = messageAround(this.view.record, this.view.selected);
    for (const card of this.box.querySelectorAll('.message')) card.classList.toggle('selected', Number(card.dataset.id) === around);
  }

  reveal(id) {
    const around = messageAround(this.view.record, id);
    if (around >= 0) this.list.reveal(around);
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

  message(id) {
    const { record, state } = this.view;
    const message = messageAt(record, id, state);
    const selected = messageAround(record, this.view.selected) === id;
    const { sums } = this.view;
    return el(
      'article',
      { class: `message ${message.role}${selected ? ' selected' : ''}`, 'data-id': id, 'aria-label': `${message.role} message` },
      el(
        'header',
        {},
        el('span', { class: `role ${message.role}` }, message.role),
        message.name !== null && el('bdi', { class: 'of' }, message.name),
        message.callId !== null && el('bdi', { class: 'of', title: 'tool call id' }, message.callId),
        record.since[id] > 0 && el('span', { class: 'badge' }, 'fallback'),
        el('button', { type: 'button', class: 'origin', 'data-select': id, title: pathOf(record, id) }, record.label[id]),
        el('span', { class: 'num' }, counted(sums[record.end[id]] - sums[id], 'token')),
      ),
      message.content.map((part, index) => (typeof part === 'string' ? this.text(part, `${id}:${index}`) : partBox(part))),
      message.calls.map(callBox),
      !message.content.length && !message.calls.length && el('p', { class: 'nothing' }, 'No content.'),
    );
  }

  text(text, key) {
    const lines = text.length > 200 ? countLines(text) : 1;
    const cut = !this.whole.has(key) && (text.length > MOST || lines > TALL);
    const box = el('pre', { class: cut ? 'text cut' : 'text', dir: 'auto' }, cut ? text.slice(0, MOST) : text);
    if (!cut) return box;
    const size = lines > TALL ? counted(lines, 'line') : counted(text.length, 'character');
    return [box, el('button', { type: 'button', class: 'more', 'data-whole': key }, `Show all ${size}`)];
  }

  /* The height in pixels; a row that is drawn is measured. */
  estimate(id) {
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
    if (button && button.dataset.whole) {
      this.whole.add(button.dataset.whole);
      this.list.draw(true);
      this.box.focus();
    }
    if (button && button.dataset.select) this.view.select(Number(button.dataset.select), { from: this, open: true });
  }
}

function partBox(part) {
  return el('p', { class: isCacheBreakpoint(part) ? 'part breakpoint' : 'part' }, el('span', {}, partText(part)));
}

function callBox([id, name, args]) {
  return el(
    'div',
    { class: 'call' },
    el('span', { class: 'arrow', 'aria-hidden': 'true' }, '→'),
    el('span', { class: 'unseen' }, 'calls '),
    el('bdi', { class: 'function' }, name),
    el('code', { dir: 'auto' }, args),
    el('bdi', { class: 'of', title: 'tool call id' }, id),
  );
}

function countLines(text) {
  let lines = 1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines += 1;
  return lines;
}
