/*
 * The removals: everything that can be removed, in order, and which removals the current budget makes.
 */

class Removals {
  constructor(view) {
    this.view = view;
    this.box = byId('removals');
    this.list = new Windowed(this.box, { make: (index) => this.row(index) });
    this.keys = view.record.removals.map((_, index) => index);
    if (!this.keys.length) this.list.instead(el('p', { class: 'nothing' }, 'Nothing in this prompt can be removed.'));
    this.box.addEventListener('click', (event) => {
      const row = event.target.closest('.removal');
      if (row) this.view.select(this.view.record.removals[Number(row.dataset.index)].item, { open: true });
    });
  }

  update() {
    const { record, state, fits } = this.view;
    const taken = record.removals.filter((removal) => removal.step < state);
    const tokens = taken.reduce((sum, removal) => sum + removal.tokens, 0);
    byId('count-removals').textContent = figure(taken.length);
    byId('removals-note').textContent = record.removals.length
      ? `${figure(taken.length)} of ${counted(record.removals.length, 'removal')} made${fits ? '' : ', and the prompt does not fit yet'}: ${counted(tokens, 'token')}.`
      : '';
    // Scroll to the last removal that is made, once it changes.
    if (this.taken !== undefined && this.taken !== taken.length) this.list.place(Math.min(taken.length, this.keys.length - 1), 90);
    this.taken = taken.length;
    this.list.show(this.keys);
  }

  /* Bring the removal of an element into sight. */
  reveal(id) {
    const index = this.view.record.removalOf[id];
    if (index >= 0) this.list.reveal(index);
    this.list.draw(true);
  }

  row(index) {
    const { record, state, selected } = this.view;
    const removal = record.removals[index];
    const taken = removal.step < state;
    const next = record.removals[index + 1];
    const last = taken && (!next || next.step >= state);
    const { item } = removal;
    const call = removal.call === null ? '' : ` › call ${(record.calls[item] || [])[removal.call]?.[0] ?? ''}`;
    return el(
      'div',
      {
        class: `removal ${taken ? 'taken' : 'waiting'}${last ? ' last' : ''}${item === selected ? ' selected' : ''}`,
        role: 'listitem',
        'data-index': index,
        title: `${pathOf(record, item)}${call}: ${removal.reason}${removal.partner === null ? '' : `, ${pathOf(record, removal.partner)}`}`,
      },
      el('span', { class: 'num' }, figure(removal.order)),
      el('span', { class: 'mark' }, taken ? '✕' : '', el('span', { class: 'unseen' }, taken ? 'made' : 'not made')),
      el('span', { class: 'num' }, figure(removal.tokens)),
      el('span', { class: 'num priority' }, priorityText(removal.priority)),
      el('bdi', { class: 'what' }, shortPath(record, item) + call),
      el('span', { class: 'why' }, removal.step < 0 ? 'limit' : removal.reason, removal.partner === null ? '' : ` ${oneStep(record, removal.partner)}`),
    );
  }
}

/* The label of an element, or the last segment of its path that distinguishes it from its siblings. */
function oneStep(record, id) {
  if (record.named[id] !== undefined) return record.named[id];
  const steps = stepsTo(record, id).reverse();
  return record.label[steps.find((step) => record.siblings[record.parent[step]] > 1) ?? id];
}

/* What receipts call an element: its label, or the last segments of its path. */
function shortPath(record, id) {
  const steps = shownSteps(record, id);
  const first = record.named[steps[0]] === undefined ? Math.max(0, steps.length - 2) : 0;
  return steps.slice(first).map((step) => shownName(record, step)).join(' › ') || 'prompt';
}
