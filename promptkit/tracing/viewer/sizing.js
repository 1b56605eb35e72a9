/*
 * Sizing: which flex group was given how much and used how much, in the order of sizing; and how long things took.
 */

const SLOWEST = 12;

class Sizing {
  constructor(view) {
    this.view = view;
    this.box = byId('sizing');
    const shared = view.record.epochs.map((_, index) => index).filter((index) => this.isTelling(view.record.epochs[index]));
    this.everything = shared.length === view.record.epochs.length;
    this.shown = shared;
    this.list = new Windowed(this.box, { make: (key) => this.block(key), estimate: (key) => this.estimate(key) });
    this.box.addEventListener('click', (event) => {
      const button = event.target.closest('[data-select]');
      if (button) view.select(Number(button.dataset.select), { open: true });
    });
    this.list.show(this.keys());
  }

  /* A group of one that is not flex says nothing that its container does not say. */
  isTelling(epoch) {
    return epoch.grow !== null || epoch.members.length > 1 || (epoch.members.length === 1 && epoch.plain > 0);
  }

  /* -1 stands for the timings, which come first. */
  keys() {
    return [-1, ...this.shown];
  }

  estimate(key) {
    return key < 0 ? 160 : 70 + 24 * this.view.record.epochs[key].members.length;
  }

  block(key) {
    return key < 0 ? this.timings() : this.group(this.view.record.epochs[key]);
  }

  timings() {
    const { record } = this.view;
    const total = record.timings.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
    const stages = record.timings.map(([stage, seconds]) => [stage, seconds / total, duration(seconds)]);
    const timed = Object.entries(record.seconds).map(([id, seconds]) => [Number(id), seconds]);
    timed.sort((one, other) => other[1] - one[1]);
    const slowest = timed.slice(0, SLOWEST);
    const most = slowest.length ? slowest[0][1] || 1 : 1;
    return el(
      'section',
      { class: 'block' },
      el('h2', {}, 'Where the time went'),
      el('div', { class: 'lines' }, stages.map(([stage, share, text]) => line(stage, share, text))),
      slowest.length > 0 && el('h3', {}, `Slowest of ${counted(timed.length, 'component')}`),
      el('div', { class: 'lines' }, slowest.map(([id, seconds]) => line(selector(record, id), seconds / most, duration(seconds)))),
      el('h2', {}, 'Who was given how much'),
      el('p', { class: 'note' }, 'Flex groups in the order in which they were sized: each shares what the groups before it left.'),
      !this.everything && el('button', { type: 'button', onclick: () => this.all() }, `Show all ${counted(record.epochs.length, 'group')}, those of one member too`),
    );
  }

  all() {
    this.everything = true;
    this.shown = this.view.record.epochs.map((_, index) => index);
    this.list.show(this.keys());
  }

  group(epoch) {
    const { record } = this.view;
    const kind = epoch.grow === null ? 'first, without flex_grow' : `flex_grow ${figure(epoch.grow)}`;
    const held = epoch.reserved ? `, ${figure(epoch.reserved)} of them held back for later groups` : '';
    return el(
      'section',
      { class: 'block' },
      el('h3', {}, selector(record, epoch.container), el('span', { class: 'kind' }, kind)),
      el('p', { class: 'note' }, `${counted(epoch.available, 'token')} left${held}`),
      el(
        'div',
        { class: 'lines' },
        epoch.members.slice(0, 200).map(({ item, basis, budget, used }) => {
          const weight = basis === 1 ? '' : ` (basis ${figure(basis)})`;
          return line([memberLink(record, item), weight], budget ? used / budget : 0, `${figure(used)} / ${figure(budget)}`);
        }),
        epoch.members.length > 200 && el('p', { class: 'note' }, `${figure(epoch.members.length - 200)} more`),
        epoch.plain > 0 && line(`${counted(epoch.plain, 'plain text or part')} at ${figure(epoch.plainShare)} each`, epoch.plainShare ? epoch.plainUsed / (epoch.plain * epoch.plainShare) : 0, figure(epoch.plainUsed)),
      ),
    );
  }
}

/* A name, a bar for a share of one, and a figure. */
function line(name, share, text) {
  const bar = el('span', { class: 'share' }, el('span', {}));
  bar.firstChild.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return el('div', { class: 'line' }, el('span', { class: 'who' }, name), bar, el('span', { class: 'num' }, text));
}

function memberLink(record, id) {
  return el('button', { type: 'button', class: 'link', 'data-select': id, title: pathOf(record, id) }, record.label[id] || 'prompt');
}
