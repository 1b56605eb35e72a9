/*
 * The tree: one row for each element, which can be folded. What is dropped is hidden at first.
 */

const BAR = 12; // pixels

class Tree {
  constructor(view) {
    this.view = view;
    this.box = byId('tree');
    this.folded = new Uint8Array(view.record.count);
    this.foldMessages();
    this.withDropped = false;
    this.bars = new Bars(view);
    this.previews = new Map();
    this.list = new Windowed(this.box, { make: (id) => this.row(id) });
    this.box.addEventListener('click', (event) => this.clicked(event));
    this.box.addEventListener('keydown', (event) => this.pressed(event));
    byId('fold').addEventListener('click', () => this.foldAll(true));
    byId('unfold').addEventListener('click', () => this.foldAll(false));
    byId('dropped').addEventListener('click', () => this.showDropped(!this.withDropped));
    byId('zoom').addEventListener('click', () => this.zoom(this.view.zoomed || this.view.selected));
    this.width = 0; // of a bar
    new ResizeObserver(([{ contentRect }]) => this.resized(contentRect.width)).observe(byId('bar-head'));
  }

  /* Draw again for another budget or other rows. */
  update() {
    this.bars.measure(Math.max(1, this.width));
    this.list.show(this.visible());
    this.offer();
  }

  /* Set the labels and states of the buttons that show what is dropped and that zoom the bars. */
  offer() {
    const { record, zoomed, selected } = this.view;
    byId('dropped').setAttribute('aria-pressed', String(this.withDropped));
    const whole = zoomed === 0;
    byId('bar-head').textContent = `Share of ${whole ? 'the prompt' : record.shown[zoomed]}`;
    byId('zoom').textContent = whole ? 'Zoom in on the selected' : 'Zoom out';
    byId('zoom').disabled = whole && (selected === 0 || record.offset[selected] === record.offset[record.end[selected]]);
  }

  resized(width) {
    this.width = Math.floor(width);
    this.update();
  }

  foldMessages() {
    const { record } = this.view;
    for (const id of record.messages) this.folded[id] = 1;
  }

  foldAll(fold) {
    this.folded.fill(fold ? 1 : 0);
    this.folded[0] = 0;
    this.update();
    this.list.reveal(this.nearest(this.view.selected));
  }

  showDropped(shown) {
    this.withDropped = shown;
    this.update();
    this.list.reveal(this.nearest(this.view.selected));
  }

  /* Let bars show this element, or the whole prompt again. */
  zoom(id) {
    this.bars.zoom(this.view.zoomed === id ? 0 : id);
    this.update();
  }

  visible() {
    const { record, state } = this.view;
    const ids = [];
    for (let id = 0; id < record.count; ) {
      const shown = this.withDropped || isKept(record, id, state);
      if (shown) ids.push(id);
      id = !shown || this.folded[id] ? record.end[id] : id + 1;
    }
    return ids;
  }

  /* The element itself, or the folded element around it. */
  nearest(id) {
    let found = id;
    for (const step of stepsTo(this.view.record, id).reverse()) {
      const { parent } = this.view.record;
      if (this.folded[parent[step]]) found = parent[step];
    }
    return found;
  }

  /* Unfold the ancestors of an element, show what is dropped if it is, and scroll to its row. */
  reveal(id) {
    let changed = !this.withDropped && !isKept(this.view.record, id, this.view.state);
    if (changed) this.withDropped = true;
    for (const step of stepsTo(this.view.record, id)) {
      const parent = this.view.record.parent[step];
      if (this.folded[parent]) {
        this.folded[parent] = 0;
        changed = true;
      }
    }
    if (changed) this.update();
    else this.list.draw(true);
    this.list.reveal(id);
    this.box.setAttribute('aria-activedescendant', `row-${id}`);
    this.offer();
  }

  /* Draw the bars in the colours of another theme. */
  drawBars() {
    for (const canvas of this.box.querySelectorAll('canvas')) this.bars.draw(canvas, Number(canvas.dataset.id), BAR);
  }

  row(id) {
    const { record, state, sums, selected, matches } = this.view;
    const kept = isKept(record, id, state);
    const opens = record.end[id] > id + 1;
    const role = record.kind[id] === 'm' ? record.role[id] : null;
    const match = matches && matches.has(id);
    const all = record.offset[record.end[id]] - record.offset[id];
    const left = sums[record.end[id]] - sums[id];
    const row = el(
      'div',
      {
        class: `row ${kept ? 'kept' : 'dropped'}${match ? ' match' : ''}`,
        id: `row-${id}`,
        role: 'treeitem',
        'data-id': id,
        'data-kept': kept ? 'yes' : 'no',
        'aria-level': record.depth[id] + 1,
        'aria-setsize': id ? record.siblings[record.parent[id]] : 1,
        'aria-posinset': record.position[id] + 1,
        'aria-expanded': opens ? String(!this.folded[id]) : null,
        'aria-selected': String(selected === id),
        'aria-label': `${id ? record.shown[id] : 'prompt'}, ${kept ? 'kept' : 'dropped'}, ${counted(kept ? left : all, 'token')}`,
      },
      el(
        'span',
        { class: 'element' },
        el('span', { class: opens ? `twist ${this.folded[id] ? 'shut' : 'open'}` : 'twist', 'aria-hidden': 'true' }),
        el('bdi', { class: role ? `label role ${role}` : `label ${record.kind[id]}` }, id ? record.shown[id] : 'prompt'),
        onlyLiteralLeft(record, id, state) && literalBadge(),
        el('bdi', { class: 'preview' }, this.preview(id)),
      ),
      this.bars.pixels ? this.bars.of(id, BAR) : el('span', { class: 'bar' }),
      el('span', { class: 'num tokens' }, left === all || !kept ? figure(all) : `${figure(left)} / ${figure(all)}`),
      el('span', { class: 'num given' }, givenText(record, id)),
      el('span', { class: 'num priority' }, id ? priorityText(record.priority[id]) : ''),
      el('span', { class: 'fate' }, id ? fateMark(record, id, state) : ''),
    );
    row.firstChild.style.paddingLeft = `${Math.min(record.depth[id], 24) * 12}px`;
    return row;
  }

  /* The first words of an element whose text is not shown elsewhere. */
  preview(id) {
    const { record } = this.view;
    if (record.kind[id] === 'c' || (record.kind[id] === 'm' && !this.folded[id] && !isAtom(record, id))) return '';
    let words = this.previews.get(id);
    if (words === undefined) {
      words = wordsOf(record, id);
      this.previews.set(id, words);
    }
    return words;
  }

  clicked(event) {
    const row = event.target.closest('.row');
    if (!row) return;
    const id = Number(row.dataset.id);
    if (event.target.classList.contains('twist')) this.toggle(id);
    this.view.select(id, { open: !event.target.classList.contains('twist') });
  }

  toggle(id) {
    if (this.view.record.end[id] === id + 1) return;
    this.folded[id] = 1 - this.folded[id];
    this.update();
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view } = this;
    const { record, selected } = view;
    const ids = this.list.keys;
    const here = this.list.indexOf(this.nearest(selected));
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.list.rowHeight) - 1);
    const opens = record.end[selected] > selected + 1;
    const moves = {
      ArrowDown: () => ids[Math.min(here + 1, ids.length - 1)],
      ArrowUp: () => ids[Math.max(here - 1, 0)],
      PageDown: () => ids[Math.min(here + page, ids.length - 1)],
      PageUp: () => ids[Math.max(here - page, 0)],
      Home: () => ids[0],
      End: () => ids.at(-1),
      ArrowRight: () => this.unfoldOr(selected, opens, 1, selected + 1),
      ArrowLeft: () => this.unfoldOr(selected, opens, 0, Math.max(0, record.parent[selected])),
      Enter: () => view.select(selected, { open: true }),
      ' ': () => this.toggle(selected),
      z: () => this.zoom(selected),
      Z: () => this.zoom(selected),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    const to = moves[event.key]();
    if (to !== undefined) view.select(to, {});
  }

  /* Fold or unfold, or move to another row if there is nothing to fold. */
  unfoldOr(id, opens, unfold, other) {
    if (opens && this.folded[id] === unfold) {
      this.toggle(id);
      return id;
    }
    return unfold && !opens ? id : other;
  }
}

/* Marks an element of which only literal text is left. */
function literalBadge() {
  return el('span', { class: 'badge', title: 'All elements in it are dropped; only the text around them is left.' }, 'only literal text left');
}

function givenText(record, id) {
  const given = record.budgets[id];
  return given === undefined || id === 0 ? '' : `${figure(record.used[id] ?? 0)} / ${figure(given)}`;
}

/* The fate of an element: the number of its removal, with a cross once it is removed. */
function fateMark(record, id, state) {
  const removal = record.removals[record.removalOf[id]];
  const gone = state > record.until[id] ? '✕ ' : '';
  if (record.until[id] < record.since[id]) return removal && removal.step < 0 ? '✕ limit' : 'never';
  if (state < record.since[id]) return 'fallback';
  if (!removal) return gone ? '✕ fallback' : record.required[id] ? 'required' : 'kept';
  return `${gone}#${removal.order}`;
}

/* The first words of an element, and its tool calls. */
function wordsOf(record, id) {
  let words = '';
  for (let at = id; at < record.end[id] && words.length < 160; at += 1) {
    if (record.text[at]) words += ` ${firstWords(record.text[at], 160)}`;
    else if (record.text[at] === '') words += ' (empty)';
    else if (record.part[at]) words += ` [${partText(record.part[at])}]`;
  }
  for (const [, name, args] of record.calls[id] || []) words += ` → ${name} ${firstWords(args, 80)}`;
  return words.trim().slice(0, 200) || (record.blank[id] ? '(blank)' : '');
}
