/*
 * The page: the state of the view, and the panels that show it.
 */

const LEAP = 10; // requests that Page Up and Page Down move by

class View {
  constructor(log) {
    this.log = log;
    this.step = this.firstStep(log);
    this.selected = null;
    this.matches = null; // the numbers that the search found
    this.mark = null; // a regular expression for the words of the search
    this.printing = false;
    this.palette = null;
    this.waiting = false;
    this.most = Math.max(1, ...log.sources.map((source) => source.tokens.reduce((most, tokens) => Math.max(most, tokens), 0)));
    this.mostPrice = Math.max(0, ...log.sources.map((source) => source.price || 0));
    this.top = this.sizeOfScale();
    this.tip = new Tip(this);
    this.head = new Head(this);
    this.charts = log.sources.map((source) => new Chart(this, source));
    this.lists = log.sources.map((source, at) => new Shown(this, source, byId(`messages-${at}`)));
    this.facts = new Facts(this);
    this.search = new Search(this);
    this.frame();
  }

  /* The page opens at the last checkpoint, where most is lost, or else at the last request. */
  firstStep(log) {
    const steps = log.sources.flatMap((source) => source.checkpoints.map((request) => stepOf(log, source, request)));
    return Math.max(0, ...(steps.length ? steps : [log.steps.length - 1]));
  }

  /* The tokens at the top of the chart: the limit is shown unless all requests are far below it. */
  sizeOfScale() {
    const { limit } = this.log;
    const parts = this.log.sources.map((source) => {
      let most = 0;
      for (let at = 0; at < source.count; at += 1) most = Math.max(most, source.parts.reduce((sum, column) => sum + column[at], 0));
      return most;
    });
    const most = Math.max(1, ...parts);
    this.largest = most;
    return limit && limit < most * 4 ? Math.max(limit, most) * 1.06 : most * 1.06;
  }

  /* What does not change: titles, the charts' boxes, the legend. */
  frame() {
    const { log } = this;
    byId('title').textContent = log.title;
    byId('about').textContent = [
      log.model,
      log.window ? `window of ${counted(log.window, 'token')}` : '',
      log.branches > 1 ? `conversation ${figure(log.branch)} of ${figure(log.branches)}` : '',
      counted(log.length, 'message'),
    ].filter(Boolean).join(' · ');
    byId('charts').replaceChildren(...log.sources.map((source, at) => el('figure', { class: 'source' }, el('figcaption', {}, this.caption(source)), this.charts[at].box)));
    const used = log.parts.map((_, part) => log.sources.some((source) => source.parts[part].some(Boolean)));
    const chip = (colour, text) => el('li', {}, el('i', { class: `chip part-${colour}` }), text);
    const dropped = el('li', {}, el('i', { class: 'chip hollow' }), 'dropped');
    byId('legend').replaceChildren(...log.parts.map((part, at) => used[at] && chip(PART_COLOURS[at], PART_TEXTS[part])).filter(Boolean), chip('cached', 'cached'), chip('paid', 'paid'), dropped);
    const slider = byId('slider');
    slider.max = Math.max(0, log.steps.length - 1);
    byId('request').max = log.steps.length;
    byId('total').textContent = `of ${figure(Math.max(...log.sources.map((source) => source.count)) && log.steps.length)}`;
    const double = log.sources.length > 1;
    document.body.classList.toggle('double', double);
    log.sources.forEach((source, at) => {
      byId(`tab-messages-${at}`).firstChild.textContent = double ? source.name : 'Messages';
      byId(`messages-${at}`).setAttribute('aria-label', `What the request shows: ${source.name}`);
      byId(`name-${at}`).textContent = source.name;
    });
    if (!double) for (const id of ['tab-messages-1', 'view-messages-1']) byId(id).remove();
  }

  caption(source) {
    const name = el('strong', {}, source.name);
    return [name, ` ${counted(source.count, 'request')}, ${counted(source.checkpoints.length, 'checkpoint')}${source.price === null ? '' : `, ${dollars(source.price)}`}`];
  }

  /* The colours of the theme. */
  colours() {
    if (!this.palette) {
      const style = getComputedStyle(document.documentElement);
      const read = (name) => style.getPropertyValue(`--${name}`).trim();
      this.palette = Object.fromEntries(['line', 'back', 'muted', 'accent', 'chosen', 'no'].map((name) => [name, read(name)]));
      this.palette.parts = PART_COLOURS.map((name) => read(`part-${name}`));
      Object.assign(this.palette, { cached: read('part-cached'), paid: read('part-paid'), summaryText: read('summary-text') });
    }
    return this.palette;
  }

  recolour() {
    this.palette = null;
    for (const chart of this.charts) chart.draw();
  }

  /* Show another step. Several calls before the next frame are one update. */
  go(step) {
    this.step = Math.max(0, Math.min(this.log.steps.length - 1, step));
    byId('slider').value = this.step;
    this.keepAddress();
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.update();
    });
  }

  /* Let the address of the page name the request, once the reader stays there. */
  keepAddress() {
    clearTimeout(this.addressing);
    this.addressing = setTimeout(() => history.replaceState(null, '', `${location.href.split('#')[0]}${this.address()}`), 300);
  }

  address() {
    return `#request-${this.step + 1}`;
  }

  update() {
    for (const chart of this.charts) chart.mark();
    for (const list of this.lists) list.update();
    this.controls();
    this.facts.update();
    this.search.update();
    document.body.dataset.step = this.step;
  }

  redraw() {
    for (const list of this.lists) list.list.draw(true);
    this.facts.updateEntry();
  }

  /* The slider, the number, and the line of figures. */
  controls() {
    const { log, step } = this;
    const [slider, number] = [byId('slider'), byId('request')];
    slider.value = step;
    slider.style.setProperty('--at', `${((100 * step) / Math.max(1, log.steps.length - 1)).toFixed(3)}%`);
    if (document.activeElement !== number || Number(number.value) !== step + 1) number.value = step + 1;
    byId('link').setAttribute('href', this.address());
    const sentences = log.sources.map((source, at) => this.sentence(source, this.lists[at].rows));
    slider.setAttribute('aria-valuetext', `Request ${step + 1} of ${log.steps.length}. ${sentences.join(' ')}`);
    byId('state').replaceChildren(...sentences.map((sentence) => el('p', {}, sentence)));
  }

  sentence(source, rows) {
    const { log, step } = this;
    const request = source.at[step];
    const name = log.sources.length > 1 ? `${source.name}: ` : '';
    if (request < 0) return `${name}no request yet.`;
    const facts = [
      counted(source.tokens[request], 'token'),
      `${figure(source.cached[request])} cached`,
      source.cost[request] === null ? '' : `${dollars(source.cost[request])} so far`,
      rows.dropped ? `${counted(rows.dropped, 'message')} dropped` : 'nothing dropped',
      source.time[request] && (wide.matches || log.sources.length === 1) ? timeText(source.time[request]) : '',
    ];
    return `${name}${facts.filter(Boolean).join(' · ')}`;
  }

  /* Select a message. `go`: show a request that it belongs to; `from` is the list that need not scroll there. */
  select(number, { go, from } = {}) {
    this.selected = number;
    if (go) this.goTo(number);
    for (const chart of this.charts) chart.select(number);
    this.facts.updateEntry();
    for (const list of this.lists) {
      if (list === from) list.list.draw(true);
      else list.reveal(number);
    }
    if (from && wide.matches) showTab('entry');
  }

  /* Show the first request with a message, unless the current one has it or has dropped it. */
  goTo(number) {
    const { log } = this;
    const here = number < log.length ? number < log.steps[this.step] : log.sources.some((source) => isIn(runsAt(source, source.at[this.step]), number));
    if (here) return;
    const steps = log.sources.map((source) => [source, requestsShowing(log, source, number)[0]]).filter(([, range]) => range);
    if (!steps.length) return;
    this.step = Math.min(...steps.map(([source, range]) => stepOf(log, source, range[0])));
    this.update();
  }

  /* Go to the next checkpoint of any source. */
  checkpoint(by) {
    const steps = this.log.sources.flatMap((source) => source.checkpoints.map((request) => stepOf(this.log, source, request)));
    const beyond = steps.filter((step) => (by > 0 ? step > this.step : step < this.step));
    if (beyond.length) this.go(by > 0 ? Math.min(...beyond) : Math.max(...beyond));
  }
}

const wide = matchMedia('(min-width: 1000px)');

function wireControls(view) {
  byId('slider').addEventListener('input', (event) => view.go(Number(event.target.value)));
  byId('request').addEventListener('input', ({ target }) => {
    if (target.value !== '' && target.validity.valid) view.go(Number(target.value) - 1);
  });
  byId('earlier').addEventListener('click', () => view.checkpoint(-1));
  byId('later').addEventListener('click', () => view.checkpoint(1));
  const any = view.log.sources.some((source) => source.checkpoints.length);
  byId('earlier').disabled = !any;
  byId('later').disabled = !any;
}

function wireKeys(view) {
  const moves = {
    ArrowLeft: () => view.go(view.step - 1),
    ArrowRight: () => view.go(view.step + 1),
    PageUp: () => view.go(view.step - LEAP),
    PageDown: () => view.go(view.step + LEAP),
    Home: () => view.go(0),
    End: () => view.go(view.log.steps.length - 1),
    '[': () => view.checkpoint(-1),
    ']': () => view.checkpoint(1),
    '/': () => {
      view.search.input.focus();
      view.search.input.select();
    },
  };
  const scrolls = new Set(['PageUp', 'PageDown', 'Home', 'End']);
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') byId('keys').open = false;
    if (event.target.matches('input[type=search], input[type=number], [role=tab]')) return;
    if (!moves[event.key] || (scrolls.has(event.key) && event.target.closest('.scroll'))) return;
    event.preventDefault();
    moves[event.key]();
  });
}

/* Show the request or the message that the address names, as links do. */
function followAddress(view) {
  const [, kind, digits] = /^#(request|message)-(\d+)$/.exec(location.hash) || [];
  const number = Number(digits) - 1;
  if (kind === 'request' && number >= 0 && number < view.log.steps.length) {
    clearTimeout(view.addressing);
    view.step = number;
    view.update();
    for (const list of view.lists) list.toStart();
  }
  if (kind !== 'message' || number < 0 || number >= view.log.count) return;
  view.select(number, { go: true });
  showTab('entry');
}

function open() {
  const log = openLog(JSON.parse(byId('record').textContent));
  byId('record').remove(); // the parsed log is enough
  const view = new View(log);
  wireTabs('request');
  wireControls(view);
  wireKeys(view);
  wirePrint(view);
  addEventListener('hashchange', () => followAddress(view));
  wireTheme(() => view.recolour());
  view.update();
  for (const list of view.lists) list.toStart();
  followAddress(view);
  document.body.classList.add('ready');
}

open();
