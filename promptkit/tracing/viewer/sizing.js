/*
 * Sizing: the budget and use of each flex group, in the order of sizing, and the durations.
 */

const SLOWEST = 12;

class Sizing {
  constructor(view) {
    this.view = view;
    this.box = byId('sizing');
    const shared = view.record.flexGroups.map((_, index) => index).filter((index) => this.isInformative(view.record.flexGroups[index]));
    this.everything = shared.length === view.record.flexGroups.length;
    this.shown = shared;
    this.list = new Windowed(this.box, { make: (key) => this.block(key), estimate: (key) => this.estimate(key) });
    this.box.addEventListener('click', (event) => {
      const button = event.target.closest('[data-select]');
      if (button) view.select(Number(button.dataset.select), { open: true });
    });
    this.list.show(this.keys());
  }

  /* A group of one member without flex_grow shows nothing that its container does not show. */
  isInformative(group) {
    return group.grow !== null || group.members.length > 1 || (group.members.length === 1 && group.plain > 0);
  }

  /* -1 is the key of the timings, which come first. */
  keys() {
    return [-1, ...this.shown];
  }

  estimate(key) {
    return key < 0 ? 160 : 70 + 24 * this.view.record.flexGroups[key].members.length;
  }

  block(key) {
    return key < 0 ? this.timings() : this.group(this.view.record.flexGroups[key]);
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
      el('h2', {}, 'Durations'),
      el('div', { class: 'lines' }, stages.map(([stage, share, text]) => line(stage, share, text))),
      slowest.length > 0 && el('h3', {}, `Slowest of ${counted(timed.length, 'component')}`),
      el('div', { class: 'lines' }, slowest.map(([id, seconds]) => line(selector(record, id), seconds / most, duration(seconds)))),
      el('h2', {}, 'Flex groups'),
      el('p', { class: 'note' }, 'In the order of sizing. Each group shares the tokens that the groups before it left over.'),
      record.notes.map((note) => el('p', { class: 'note' }, `Note: ${note}`)),
      !this.everything && el('button', { type: 'button', onclick: () => this.all() }, `Show all ${counted(record.flexGroups.length, 'group')}, including groups of one member`),
    );
  }

  all() {
    this.everything = true;
    this.shown = this.view.record.flexGroups.map((_, index) => index);
    this.list.show(this.keys());
  }

  group(group) {
    const { record } = this.view;
    const kind = group.grow === null ? 'first, without flex_grow' : `flex_grow ${figure(group.grow)}`;
    const held = group.reserved ? `, ${figure(group.reserved)} of them reserved for later groups` : '';
    return el(
      'section',
      { class: 'block' },
      el('h3', {}, selector(record, group.container), el('span', { class: 'kind' }, kind)),
      el('p', { class: 'note' }, `${counted(group.available, 'token')} left${held}`),
      el(
        'div',
        { class: 'lines' },
        group.members.slice(0, 200).map(({ item, basis, budget, used }) => {
          const weight = basis === 1 ? '' : ` (basis ${figure(basis)})`;
          return line([memberLink(record, item), weight], budget ? used / budget : 0, `${figure(used)} / ${figure(budget)}`);
        }),
        group.members.length > 200 && el('p', { class: 'note' }, `${figure(group.members.length - 200)} more`),
        group.plain > 0 && line(`${counted(group.plain, 'plain text or part')} at ${figure(group.plainShare)} each`, group.plainShare ? group.plainUsed / (group.plain * group.plainShare) : 0, figure(group.plainUsed)),
      ),
    );
  }
}

/* A name, a bar for a share from 0 to 1, and a number. */
function line(name, share, text) {
  const bar = el('span', { class: 'share' }, el('span', {}));
  bar.firstChild.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return el('div', { class: 'line' }, el('span', { class: 'who' }, name), bar, el('span', { class: 'num' }, text));
}

function memberLink(record, id) {
  return el('button', { type: 'button', class: 'link', 'data-select': id, title: pathOf(record, id) }, record.shown[id] || 'prompt');
}
