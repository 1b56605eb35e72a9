/*
 * Search over paths and texts, from match to match in document order.
 */

class Search {
  constructor(view) {
    this.view = view;
    this.input = byId('query');
    this.found = [];
    this.at = -1;
    this.lower = new Map(); // texts in lower case, filled while searching
    this.input.addEventListener('input', () => this.run());
    this.input.addEventListener('keydown', (event) => this.pressed(event));
    byId('next').addEventListener('click', () => this.step(1));
    byId('previous').addEventListener('click', () => this.step(-1));
  }

  run() {
    const query = this.input.value.trim().toLowerCase();
    this.found = query ? this.search(query) : [];
    this.at = -1;
    this.view.matches = query ? new Set(this.found) : null;
    if (this.found.length) this.step(1);
    else this.view.tree.list.draw(true);
    this.say(query);
  }

  search(query) {
    const { record } = this.view;
    const found = [];
    const steps = query.replaceAll('›', '>').split('>').map((step) => step.trim());
    for (let id = 1; id < record.count; id += 1) {
      if (this.inPath(id, steps) || this.inText(id, query)) found.push(id);
    }
    return found;
  }

  /* Whether a path ends in these steps: whole labels in the middle, parts of labels at the ends. */
  inPath(id, steps) {
    const { record } = this.view;
    let at = id;
    for (let step = steps.length - 1; step >= 0; step -= 1) {
      if (at <= 0) return false;
      const label = record.label[at].toLowerCase();
      const fits = step === steps.length - 1 ? steps.length === 1 ? label.includes(steps[step]) : label.startsWith(steps[step]) : label.endsWith(steps[step]) || label.replace(/\[\d+\]$/, '').endsWith(steps[step]);
      if (!fits) return false;
      at = record.parent[at];
    }
    return true;
  }

  inText(id, query) {
    let text = this.lower.get(id);
    if (text === undefined) {
      text = this.textOf(id).toLowerCase();
      this.lower.set(id, text);
    }
    return text.includes(query);
  }

  textOf(id) {
    const { record } = this.view;
    const calls = (record.calls[id] || []).map(([call, name, args]) => `${name} ${args} ${call}`);
    const part = record.part[id] ? [partText(record.part[id])] : [];
    return [record.text[id], record.name[id], record.callId[id], ...calls, ...part].filter(Boolean).join('\n');
  }

  step(by) {
    if (!this.found.length) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    this.view.select(this.found[this.at], {});
    this.say(this.input.value);
  }

  say(query) {
    const none = this.found.length === 0;
    byId('found').textContent = !query ? '' : none ? 'no match' : `${figure(this.at + 1)} of ${figure(this.found.length)}`;
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
      this.view.tree.box.focus();
    }
  }
}
