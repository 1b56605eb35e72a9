/*
 * A long list whose document contains only the visible rows. Rows have keys: numbers that increase from row to row.
 */

const OVERSCAN = 240; // pixels above and below the visible rows

class Windowed {
  /* `make(key)` creates a row. Without `estimate`, all rows have the height `--row`. With it, rows are measured, and it returns a guess. */
  constructor(scroller, { make, estimate }) {
    this.scroller = scroller;
    this.make = make;
    this.estimate = estimate || null;
    this.measured = new Map();
    this.keys = [];
    this.offsets = new Float64Array(1);
    [this.first, this.last] = [0, 0]; // the rows that are in the document
    this.whole = false; // whether all rows are in the document, as for a print
    this.moved = null; // called with the pixels that the reader scrolled by
    [this.top, this.width, this.height] = [0, 0, 0]; // of the scroller; reading them from it would cost a layout each time
    this.above = el('div', { role: 'none' });
    this.rows = el('div', { role: 'none' });
    this.below = el('div', { role: 'none' });
    this.empty = el('div', { role: 'none' });
    scroller.replaceChildren(this.above, this.rows, this.below, this.empty);
    scroller.addEventListener('scroll', () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.resized()).observe(scroller);
  }

  /* Show these rows. The row at the top stays there, or else the next one in order. */
  show(keys) {
    const anchor = this.anchor();
    this.keys = keys;
    this.layOut();
    const held = this.held();
    if (anchor) this.restore(anchor);
    this.draw(true);
    this.focus(held);
  }

  /* The `data-hold` of the button that has the focus, which is lost when the rows are made again. */
  held() {
    return this.rows.contains(document.activeElement) ? document.activeElement.dataset.hold : undefined;
  }

  focus(held) {
    if (held !== undefined) this.rows.querySelector(`[data-hold="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
  }

  /* Set the content for an empty list; null removes it. */
  instead(content) {
    this.empty.replaceChildren(...(content ? [content] : []));
  }

  /* Scroll to a row if it is not visible. */
  reveal(key) {
    this.resized();
    // Estimated heights may be wrong until the rows are drawn, so a second pass corrects them.
    for (let time = 0; time < (this.estimate ? 2 : 1); time += 1) {
      this.place(key, 0);
      this.draw(false);
    }
  }

  /* Scroll so that a row is visible, with some pixels above and below it. Nothing is drawn yet. */
  place(key, around) {
    const index = this.indexOf(key);
    if (this.keys[index] !== key || !this.height) return;
    const [start, end] = [this.offsets[index] - around, this.offsets[index + 1] + around];
    if (start < this.top || end - start > this.height) this.scrollTo(start);
    else if (end > this.top + this.height) this.scrollTo(end - this.height);
  }

  scrolled() {
    const by = this.scroller.scrollTop - this.top; // 0 where the page itself scrolled
    this.top += by;
    this.draw(false);
    if (by && this.moved) this.moved(by);
  }

  resized() {
    const { clientWidth, clientHeight } = this.scroller;
    if (clientWidth === this.width && clientHeight === this.height) return;
    if (clientWidth !== this.width) this.measured.clear();
    [this.width, this.height] = [clientWidth, clientHeight];
    if (!this.estimate) this.rowHeight = parseFloat(getComputedStyle(this.scroller).getPropertyValue('--row'));
    this.show(this.keys);
  }

  heightOf(key) {
    return this.estimate ? this.measured.get(key) ?? this.estimate(key) : this.rowHeight || 0;
  }

  layOut() {
    this.offsets = new Float64Array(this.keys.length + 1);
    for (let at = 0; at < this.keys.length; at += 1) this.offsets[at + 1] = this.offsets[at] + this.heightOf(this.keys[at]);
  }

  scrollTo(top) {
    const there = Math.max(0, Math.min(top, this.offsets[this.keys.length] - this.height));
    if (there === this.top) return; // setting it again would cost a layout
    this.top = there;
    this.scroller.scrollTop = there;
  }

  /* The row at the top, and how many of its pixels are above the edge. */
  anchor() {
    if (!this.keys.length) return null;
    const index = this.at(this.top);
    return { key: this.keys[index], within: this.top - this.offsets[index] };
  }

  restore({ key, within }) {
    const top = this.top === 0 ? 0 : this.offsets[this.indexOf(key)] + within;
    this.above.style.height = '0';
    this.rows.replaceChildren();
    this.below.style.height = `${this.offsets[this.keys.length]}px`; // otherwise the scroller could not scroll there
    this.scrollTo(top);
  }

  /* The first row whose key is not smaller. */
  indexOf(key) {
    let [low, high] = [0, this.keys.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.keys[middle] < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /* The row at a vertical position. */
  at(top) {
    let [low, high] = [0, Math.max(0, this.keys.length - 1)];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= top) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /* The rows within some pixels of the visible area: the first, and the one after the last. */
  range(around) {
    if (this.whole) return [0, this.keys.length];
    return this.keys.length ? [this.at(Math.max(0, this.top - around)), this.at(this.top + this.height + around) + 1] : [0, 0];
  }

  /* Put the visible rows into the document; without `anew` only if some of them are missing. */
  draw(anew) {
    if (!this.height) return; // hidden: it is drawn when it becomes visible
    const [needed, end] = this.range(OVERSCAN / 2);
    if (!anew && needed >= this.first && end <= this.last) return;
    [this.first, this.last] = this.range(OVERSCAN);
    const anchor = this.anchor();
    const held = this.held();
    this.rows.replaceChildren(...this.keys.slice(this.first, this.last).map((key) => this.make(key)));
    this.focus(held);
    const otherwise = this.estimate !== null && this.measure();
    this.above.style.height = `${this.offsets[this.first]}px`;
    this.below.style.height = `${this.offsets[this.keys.length] - this.offsets[this.last]}px`;
    if (!otherwise) return;
    if (this.top > 0) this.scrollTo(this.offsets[this.indexOf(anchor.key)] + anchor.within);
    this.draw(false); // rows may be lower than estimated
  }

  /* Measure the new rows. Returns whether their heights differ from the known ones. */
  measure() {
    let changed = false;
    [...this.rows.children].forEach((row, index) => {
      const key = this.keys[this.first + index];
      const { height } = row.getBoundingClientRect();
      changed = changed || height !== this.heightOf(key);
      this.measured.set(key, height);
    });
    if (changed) this.layOut();
    return changed;
  }
}
