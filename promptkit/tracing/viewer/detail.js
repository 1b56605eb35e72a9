/*
 * The selected element: where it stands, when and why it goes, what it was given, what it says.
 */

const WHY = {
  budget: 'it was the least important when room was needed',
  limit: 'it was the least important inside a limit',
  'kept-with': 'its KeepWith group went',
  'tool-pair': 'the tool call or result that it belongs to went',
};

class Detail {
  constructor(view) {
    this.view = view;
    this.box = byId('detail');
    this.whole = false;
    this.box.addEventListener('click', (event) => {
      const button = event.target.closest('[data-select]');
      if (button) this.view.select(Number(button.dataset.select), {});
    });
  }

  select() {
    this.whole = false;
    this.update();
    this.box.scrollTop = 0;
  }

  update() {
    const { record, selected: id, state } = this.view;
    const kept = isKept(record, id, state);
    this.box.className = kept ? 'kept' : 'dropped';
    this.box.replaceChildren(
      el(
        'header',
        {},
        this.path(id),
        el('button', { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => this.view.closeDetail() }, '×'),
      ),
      el('div', { class: 'when' }, this.fate(id, kept)),
      el('dl', { class: 'props' }, this.props(id).map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
      ...this.content(id),
    );
  }

  path(id) {
    const { record } = this.view;
    const steps = [0, ...stepsTo(record, id)];
    const shown = steps.length > 12 ? [...steps.slice(0, 4), null, ...steps.slice(-6)] : steps;
    return el(
      'nav',
      { class: 'path', 'aria-label': 'Path' },
      shown.map((step, index) => [
        index > 0 && el('span', { class: 'sep', 'aria-hidden': 'true' }, '›'),
        step === null && el('span', {}, `… ${figure(steps.length - 10)} more …`),
        step !== null && step !== id && el('button', { type: 'button', 'data-select': step }, step ? record.label[step] : 'prompt'),
        step === id && el('bdi', { class: 'here', 'aria-current': 'true' }, step ? record.label[step] : 'prompt'),
      ]),
    );
  }

  /* When it is there, and why it goes. */
  fate(id, kept) {
    const { record, budget, state, fits } = this.view;
    const here = fits ? `at ${figure(budget)}` : 'among what must stay';
    const span = budgetsOf(record, id);
    const now = kept ? `Kept ${here}.` : `${state < record.since[id] ? 'Standing by' : 'Dropped'} ${fits ? here : 'when all goes that may'}.`;
    const lines = [el('p', {}, el('strong', { class: kept ? 'yes' : 'no' }, now), ' ', this.span(id, span))];
    const removal = record.removals[record.removalOf[id]];
    if (removal && record.until[id] !== FOREVER) lines.push(this.reason(id, removal));
    if (record.since[id] > 0 && record.until[id] >= record.since[id]) {
      lines.push(el('p', {}, `It is a fallback, or stands in one: it comes with step ${figure(record.since[id])}, when what it stands in for goes.`));
    }
    return lines;
  }

  span(id, span) {
    const { record, needed } = this.view;
    if (span === null) return record.until[id] < 0 ? 'No budget keeps it.' : 'No budget ends in a state that keeps it.';
    const always = span.from === needed && span.to === null;
    if (record.until[id] === FOREVER && span.to === null) return record.required[id] ? 'Required: it is never removed.' : 'It is never removed.';
    if (always) return 'Every budget that fits keeps it.';
    const going = el('span', {}, span.to === null ? `From ${figure(span.from)} tokens up. ` : `From ${figure(span.from)} to ${counted(span.to, 'token')}. `);
    return [going, this.jump(span)];
  }

  /* To the budget at which it comes or goes. */
  jump({ from, to }) {
    const { budget } = this.view;
    if (budget < from) return this.view.goButton(from);
    if (to !== null && budget > to) return this.view.goButton(to);
    return from > 0 ? this.view.goButton(from - 1) : null;
  }

  reason(id, removal) {
    const { record } = this.view;
    const through = removal.item !== id && [' with ', selector(record, removal.item)];
    const partner = removal.partner !== null && [', taken along by ', selector(record, removal.partner)];
    const when = removal.step < 0 ? 'before any budget' : `in step ${figure(removal.step + 1)} of ${figure(lastState(record))}`;
    return el('p', {}, `It goes${through ? '' : ' '}`, through, through ? ' ' : null, `as removal ${figure(removal.order)}, ${when}: ${WHY[removal.reason] || removal.reason}`, partner, '.');
  }

  props(id) {
    const { record } = this.view;
    const subtree = record.offset[record.end[id]] - record.offset[id];
    const known = [
      ['element', record.element[id] || { c: id ? 'fragment' : 'the whole', m: 'message', t: 'plain text', p: 'part' }[record.kind[id]]],
      ['role', record.role[id]],
      ['name', record.name[id]],
      ['tool call', record.callId[id]],
      ['priority', id === 0 ? null : record.priority[id] >= HIGHEST ? 'none: as high as can be' : priorityText(record.priority[id])],
      ['tokens', record.tokens[id] && record.end[id] > id + 1 ? `${figure(subtree)}, of them its own ${figure(record.tokens[id])}` : figure(subtree)],
      ['request', id ? null : `${counted(this.request(), 'token')} more for itself and where texts meet`],
      ['used / given', record.budgets[id] === undefined ? null : `${figure(record.used[id] ?? 0)} / ${figure(record.budgets[id])}`],
      ['required', record.required[id] ? 'yes' : null],
      ['limit', record.limit[id] === undefined ? null : counted(record.limit[id], 'token')],
      ['keeps free', record.reserve[id] === undefined ? null : counted(record.reserve[id], 'token')],
      ['render took', record.seconds[id] === undefined ? null : duration(record.seconds[id])],
    ];
    return known.filter(([, value]) => value !== null && value !== undefined && value !== '');
  }

  /* What the whole costs beyond its pieces. */
  request() {
    const { record, state, sums } = this.view;
    return record.counts[state] - sums[record.count];
  }

  /* What it says, kept or dropped: its texts, parts and calls. */
  content(id) {
    const { record, state } = this.view;
    if (record.kind[id] === 'c') return [];
    const found = [];
    const calls = []; // sent behind the text
    for (let at = id; at < record.end[id]; at += 1) {
      const there = isKept(record, at, state) ? '' : ' dropped';
      if (record.text[at]) found.push(this.text(record.text[at], there));
      if (record.part[at]) found.push(el('p', { class: `part${there}` }, el('span', {}, partText(record.part[at]))));
      for (const [call, name, args, until] of record.calls[at] || []) {
        const box = callBox([call, name, pretty(args)]);
        if (there || (until !== null && state > until)) box.classList.add('dropped');
        calls.push(box);
      }
    }
    return [...found, ...calls];
  }

  text(text, there) {
    const cut = text.length > MOST && !this.whole;
    const box = el('pre', { class: `text${there}`, dir: 'auto' }, cut ? text.slice(0, MOST) : text);
    const more = () => {
      this.whole = true;
      this.update();
    };
    return cut ? el('div', {}, box, el('button', { type: 'button', class: 'more', onclick: more }, `Show all ${counted(text.length, 'character')}`)) : box;
  }
}

/* A link to an element. */
function selector(record, id) {
  return el('button', { type: 'button', class: 'link', 'data-select': id, title: pathOf(record, id) }, shortPath(record, id));
}

/* JSON over several lines; what is none stays as it is. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
