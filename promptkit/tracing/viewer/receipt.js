/*
 * The receipt: everything that can be removed, in order, and how far the budget at hand goes.
 */

class Receipt {
  constructor(view) {
    this.view = view;
    this.box = byId('receipt');
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
    byId('count-receipt').textContent = figure(taken.length);
    byId('receipt-note').textContent = record.removals.length
      ? `${figure(taken.length)} of ${counted(record.removals.length, 'removal')} taken${fits ? '' : ', and it does not fit yet'}: ${counted(tokens, 'token')}.`
      : '';
    // The place up to which removals are taken stays in sight, once it moves.
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
      el('span', { class: 'mark' }, taken ? '✕' : '', el('span', { class: 'unseen' }, taken ? 'taken' : 'not taken')),
      el('span', { class: 'num' }, figure(removal.tokens)),
      el('span', { class: 'num priority' }, priorityText(removal.priority)),
      el('bdi', { class: 'what' }, shortPath(record, item) + call),
      el('span', { class: 'why' }, removal.step < 0 ? 'limit' : removal.reason, removal.partner === null ? '' : ` ${oneStep(record, removal.partner)}`),
    );
  }
}

/* The last step of a path that tells an element from its siblings. */
function oneStep(record, id) {
  const steps = stepsTo(record, id).reverse();
  return record.label[steps.find((step) => record.siblings[record.parent[step]] > 1) ?? id];
}

/* The last steps of a path. */
function shortPath(record, id) {
  const steps = stepsTo(record, id);
  return steps.slice(-2).map((step) => record.label[step]).join(' › ') || 'prompt';
}
