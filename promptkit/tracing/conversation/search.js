/*
 * Search over the texts of all messages, shown and dropped. The matches of the current request come first; later ones are counted, and
 * reached through the first request after them. A message whose changed form is shown and matches too is no match of its own.
 */

class Search {
  constructor(view) {
    this.view = view;
    this.input = byId('query');
    this.lower = new Map(); // texts in lower case, filled while searching
    this.all = []; // the numbers of all messages that match
    this.found = []; // those that the search steps through
    this.at = -1;
    this.input.addEventListener('input', () => this.run());
    this.input.addEventListener('keydown', (event) => this.pressed(event));
    byId('next').addEventListener('click', () => this.step(1));
    byId('previous').addEventListener('click', () => this.step(-1));
  }

  run() {
    const query = this.input.value.trim().toLowerCase();
    this.all = [];
    for (let number = 0; query && number < this.view.log.count; number += 1) if (this.text(number).includes(query)) this.all.push(number);
    this.view.matches = query ? new Set(this.all) : null;
    this.view.mark = query ? new RegExp(query.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&'), 'giu') : null;
    this.at = -1;
    this.update();
    if (this.found.length) this.step(1);
    else this.view.redraw();
  }

  text(number) {
    let text = this.lower.get(number);
    if (text === undefined) {
      text = textOf(this.view.log, number).toLowerCase();
      this.lower.set(number, text);
    }
    return text;
  }

  /* Find out which matches the current requests show, and which they dropped. */
  update() {
    const { log, step } = this.view;
    const reply = log.steps[step];
    const shown = log.sources.map((source) => runsAt(source, source.at[step]));
    const isShown = (number) => shown.some((runs) => isIn(runs, number));
    const isReplaced = (number) => !isShown(number) && (log.forms.get(number) || []).some((form) => this.view.matches.has(form) && isShown(form));
    const here = this.all.filter((number) => (number < log.length ? number < reply && !isReplaced(number) : isShown(number)));
    this.counts = { shown: here.filter(isShown).length, here: here.length, later: this.all.filter((number) => number < log.length && number >= reply).length };
    const before = this.found[this.at];
    this.found = here.length ? here : this.all;
    this.at = this.found.indexOf(before);
    this.say();
  }

  step(by) {
    if (!this.found.length) return;
    this.at = this.at < 0 && by < 0 ? this.found.length - 1 : (this.at + by + this.found.length) % this.found.length;
    this.view.select(this.found[this.at], { go: true });
    this.say();
  }

  say() {
    const { shown, here, later } = this.counts;
    const none = this.all.length === 0;
    const states = [shown && `${figure(shown)} shown`, here - shown && `${figure(here - shown)} dropped`, later && `${figure(later)} later`].filter(Boolean).join(', ');
    const place = this.at >= 0 ? `${figure(this.at + 1)} of ${figure(this.found.length)} · ` : '';
    byId('found').textContent = this.view.matches === null ? '' : none ? 'no match' : `${place}${states || 'in other requests'}`;
    byId('next').hidden = none;
    byId('previous').hidden = none;
  }

  pressed(event) {
    if (event.key === 'Enter') {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      this.input.value = '';
      this.run();
      byId('slider').focus();
    }
  }
}
