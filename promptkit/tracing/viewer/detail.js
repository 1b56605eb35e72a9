/*
 * The selected element: its path, when and why it is removed, its budget, its content.
 */

const WHY = {
  budget: 'it had the lowest priority when the prompt exceeded the budget',
  limit: 'it had the lowest priority when a token limit was exceeded',
  'kept-with': 'its KeepWith group was removed',
  'tool-pair': 'its tool call or tool result was removed',
  cut: 'its text was shortened when the prompt exceeded the budget',
  share: 'the share of what it encloses holds nothing of it',
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
        step !== null && step !== id && el('button', { type: 'button', 'data-select': step }, step ? record.shown[step] : 'prompt'),
        step === id && el('bdi', { class: 'here', 'aria-current': 'true' }, step ? record.shown[step] : 'prompt'),
      ]),
    );
  }

  /* When the element is kept, and why it is removed. */
  fate(id, kept) {
    const { record, budget, state, fits } = this.view;
    const here = fits ? `at ${figure(budget)}` : 'because it is required';
    const span = budgetsOf(record, id);
    const now = kept ? `Kept ${here}.` : `${state < record.since[id] ? 'Not used' : 'Dropped'} ${fits ? here : 'after all possible removals'}.`;
    const lines = [el('p', {}, el('strong', { class: kept ? 'yes' : 'no' }, now), ' ', this.span(id, span))];
    if (kept && onlyLiteralLeft(record, id, state)) lines.push(el('p', {}, 'Only its literal text is left: all elements in it are dropped.'));
    const removal = record.removals[record.removalOf[id]];
    if (removal && record.until[id] !== FOREVER) lines.push(this.reason(id, removal));
    if (record.since[id] > 0 && record.until[id] >= record.since[id]) {
      lines.push(el('p', {}, `It is part of a fallback, used from step ${figure(record.since[id])} on, when the element that it replaces is removed.`));
    }
    return lines;
  }

  span(id, span) {
    const { record, needed } = this.view;
    if (span === null) return record.until[id] < 0 ? 'No budget keeps it.' : 'No budget leads to a state that keeps it.';
    const always = span.from === needed && span.to === null;
    if (record.until[id] === FOREVER && span.to === null) return record.required[id] ? 'Required: it is never removed.' : 'It is never removed.';
    if (always) return 'Every budget that fits keeps it.';
    const going = el('span', {}, span.to === null ? `From ${figure(span.from)} tokens up. ` : `From ${figure(span.from)} to ${counted(span.to, 'token')}. `);
    return [going, this.jump(span)];
  }

  /* A button to the budget at which the element is added or removed. */
  jump({ from, to }) {
    const { budget } = this.view;
    if (budget < from) return this.view.goButton(from);
    if (to !== null && budget > to) return this.view.goButton(to);
    return from > 0 ? this.view.goButton(from - 1) : null;
  }

  reason(id, removal) {
    const { record } = this.view;
    const through = removal.item !== id && [' with ', selector(record, removal.item)];
    const partner = removal.partner !== null && [', caused by ', selector(record, removal.partner)];
    const when = removal.step < 0 ? 'at every budget' : `in step ${figure(removal.step + 1)} of ${figure(lastState(record))}`;
    return el('p', {}, `It is removed${through ? '' : ' '}`, through, through ? ' ' : null, `as removal ${figure(removal.order)}, ${when}: ${WHY[removal.reason] || removal.reason}`, partner, '.');
  }

  props(id) {
    const { record } = this.view;
    const subtree = record.offset[record.end[id]] - record.offset[id];
    const known = [
      ['element', record.element[id] || { c: id ? 'fragment' : 'the whole', m: 'message', t: 'plain text', p: 'part' }[record.kind[id]]],
      ['role', record.role[id]],
      ['name', record.name[id]],
      ['tool call', record.callId[id]],
      ['priority', id === 0 ? null : record.priority[id] >= HIGHEST ? 'none (the highest)' : priorityText(record.priority[id])],
      ['tokens', record.tokens[id] && record.end[id] > id + 1 ? `${figure(subtree)}, ${figure(record.tokens[id])} of them its own` : figure(subtree)],
      ['request', id ? null : `${counted(this.request(), 'token')} more for the framing and joined texts`],
      ['used / budget', record.budgets[id] === undefined ? null : `${figure(record.used[id] ?? 0)} / ${figure(record.budgets[id])}`],
      ['required', record.required[id] ? 'yes' : null],
      ['limit', record.limit[id] === undefined ? null : counted(record.limit[id], 'token')],
      ['reserve', record.reserve[id] === undefined ? null : counted(record.reserve[id], 'token')],
      ['render time', record.seconds[id] === undefined ? null : duration(record.seconds[id])],
    ];
    return known.filter(([, value]) => value !== null && value !== undefined && value !== '');
  }

  /* The tokens of the request beyond the sum of its items. */
  request() {
    const { record, state, sums } = this.view;
    return record.counts[state] - sums[record.count];
  }

  /* The content, kept or dropped: texts, parts and tool calls. */
  content(id) {
    const { record, state } = this.view;
    if (record.kind[id] === 'c') return [];
    const found = [];
    const calls = []; // sent after the text
    for (let at = id; at < record.end[id]; at += 1) {
      const there = isKept(record, at, state) ? '' : ' dropped';
      if (record.text[at]) found.push(this.text(record.text[at], there));
      if (record.part[at]) found.push(el('p', { class: `part${there}` }, el('span', {}, partText(record.part[at]))));
      for (const [call, name, args, until] of record.calls[at] || []) {
        const box = callBox([call, name, args]);
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
