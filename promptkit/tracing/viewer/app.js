/*
 * The page: the state of the view, and the panels that show the trace.
 */

class View {
  constructor(record) {
    this.record = record;
    this.sums = new Float64Array(record.count + 1); // of kept tokens
    this.dropped = new Float64Array(record.count + 1); // of dropped tokens
    this.selected = 0;
    this.zoomed = 0;
    this.matches = null; // ids that the search found
    this.needed = leastBudget(record, () => true);
    this.setBudget(record.budget, record.state);
    this.tree = new Tree(this);
    this.messages = new Messages(this);
    this.removals = new Removals(this);
    this.sizing = new Sizing(this);
    this.detail = new Detail(this);
    this.controls = new Controls(this);
    this.search = new Search(this);
    this.strip = new Strip(this);
  }

  setBudget(budget, state) {
    this.budget = budget;
    this.fits = state !== null;
    this.state = this.fits ? state : lastState(this.record); // if nothing fits, show the required elements
    this.asRendered = budget === this.record.budget && state === this.record.state;
    keptSums(this.record, this.state, this.sums);
    droppedSums(this.record, this.state, this.dropped);
  }

  /* Switch to another budget. */
  go(budget) {
    this.setBudget(budget, stateAt(this.record, budget));
    this.update();
  }

  /* Go back to the render itself: its state may be one that this budget alone would not choose. */
  reset() {
    this.setBudget(this.record.budget, this.record.state);
    this.update();
  }

  update() {
    for (const panel of [this.controls, this.tree, this.messages, this.removals, this.detail, this.strip]) panel.update();
  }

  /* Select an element. `open` opens the detail panel where it covers the rest; `from` is the panel that need not scroll there. */
  select(id, { open, from }) {
    this.selected = id;
    if (open) document.body.classList.add('looking');
    this.detail.select();
    this.tree.reveal(id);
    if (from !== this.messages) this.messages.reveal(id);
    else this.messages.mark();
    this.removals.reveal(id);
  }

  closeDetail() {
    document.body.classList.remove('looking');
    this.tree.box.focus();
  }

  goButton(budget) {
    return el('button', { type: 'button', class: 'go', onclick: () => this.go(budget) }, `Go to ${figure(budget)}`);
  }

  /* Draw again in the colours of another theme. */
  recolour() {
    this.tree.bars.forget();
    this.strip.bars.forget();
    this.tree.drawBars();
    this.strip.update();
  }

  step(larger) {
    const budget = nextBudget(this.record, this.budget, larger);
    if (budget !== null) this.go(budget);
  }
}

/* The whole prompt as one bar. A click selects the element at that position. */
class Strip {
  constructor(view) {
    this.view = view;
    this.canvas = byId('strip');
    this.bars = new Bars(view);
    this.canvas.addEventListener('click', (event) => this.clicked(event));
    this.width = 0;
    new ResizeObserver(([{ contentRect }]) => this.resized(contentRect.width)).observe(this.canvas.parentElement);
    byId('legend').replaceChildren(...this.legend());
  }

  legend() {
    const used = new Set(Object.values(this.view.record.role));
    const roles = ROLES.filter((role) => used.has(role)).map((role) => el('li', { class: role }, el('i', { class: 'chip' }), role));
    return [...roles, el('li', {}, el('i', { class: 'chip hollow' }), 'dropped')];
  }

  update() {
    const { record, sums } = this.view;
    if (!this.width) return;
    this.bars.measure(this.width);
    this.bars.draw(this.canvas, 0, 18);
    this.canvas.setAttribute('aria-label', `The prompt in document order: ${figure(sums[record.count])} of ${counted(record.total, 'token')} kept`);
  }

  resized(width) {
    this.width = Math.floor(width);
    this.update();
  }

  clicked(event) {
    const { record } = this.view;
    const at = (event.offsetX / this.canvas.clientWidth) * record.total;
    let id = 0;
    for (let next = 1; next < record.count && record.offset[next] <= at; next += 1) if (record.tokens[next]) id = next;
    this.view.select(id, { open: true });
  }
}

function wireKeys(view) {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches('input[type=search], input[type=number]');
    if (event.key === 'Escape') {
      byId('keys').open = false;
      if (document.body.classList.contains('looking')) view.closeDetail();
      else if (typing) view.tree.box.focus();
    } else if (!typing && event.key === '/') {
      event.preventDefault();
      view.search.input.focus();
      view.search.input.select();
    } else if (!typing && (event.key === '[' || event.key === ']')) {
      event.preventDefault();
      view.step(event.key === ']');
    }
  });
}

function open() {
  const view = new View(openRecord(JSON.parse(byId('record').textContent)));
  byId('record').remove(); // the parsed record is enough
  wireTabs('tree');
  wireKeys(view);
  view.update();
  wireTheme(() => view.recolour());
  view.select(0, {});
  document.body.classList.add('ready');
}

open();
